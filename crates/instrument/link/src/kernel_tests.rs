use super::*;

fn lines(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| step.command.join(" ")).collect()
}

fn config(links: &str) -> Config {
    let text = format!(r#"{{"devices": ["h1-eth0", "h2-eth0"], "switches": ["s1"], "links": [{links}]}}"#);
    Config::read(&text).expect("a sound configuration")
}

const TWO: &str = r#"
    {"ends": ["h1-eth0", "s1"], "rate": "100Mbit", "delay": "1ms"},
    {"ends": ["h2-eth0", "s1"], "delay": "2ms", "jitter": "1ms", "loss": "0.5%",
     "reverse": {"rate": "1Mbit", "delay": "10ms", "queue": 20}}"#;

#[test]
fn a_link_is_a_bridge_of_its_own_between_a_host_and_a_port_of_its_switch() {
    let made = lines(&plan(&config(TWO)));
    for wanted in [
        "ip link add name s1 type bridge stp_state 0 mcast_snooping 0 group_fwd_mask 0xfff8",
        "ip link add name p0 type bridge stp_state 0 mcast_snooping 0 group_fwd_mask 0xfff8",
        "ip link add name h1-eth0 type veth peer name p0x",
        "ip link set dev p0x master p0 up",
        "ip link add name p0b type veth peer name p0y",
        "ip link set dev p0b master s1 up",
        "ip link set dev p0y master p0 up",
    ] {
        assert!(made.iter().any(|line| line == wanted), "{wanted} is missing of {made:#?}");
    }
}

#[test]
fn the_rate_is_htbs_and_the_queue_has_room_for_what_is_on_the_wire() {
    let made = lines(&plan(&config(TWO)));
    for device in ["p0x", "p0y"] {
        // 1 ms of 100 Mbit/s is 8.3 full frames on the wire, beside the hundred that may wait.
        for wanted in [
            format!("tc qdisc add dev {device} root handle 1: htb default 1"),
            format!("tc class add dev {device} parent 1: classid 1:1 htb rate 100000000bit ceil 100000000bit"),
            format!("tc qdisc add dev {device} parent 1:1 handle 10: netem limit 109 delay 1000us"),
        ] {
            assert!(made.contains(&wanted), "{wanted} is missing of {made:#?}");
        }
    }
}

#[test]
fn each_direction_has_its_own_shape_and_order_is_kept_by_a_rate() {
    let made = lines(&plan(&config(TWO)));
    let forward: Vec<&String> =
        made.iter().filter(|line| line.starts_with("tc ") && line.contains("dev p1y")).collect();
    assert_eq!(forward.len(), 1, "{forward:?}");
    assert!(
        forward[0].contains("root handle 10: netem")
            && forward[0].ends_with("delay 2000us 1000us loss 0.5% rate 1000gbit"),
        "{forward:?}"
    );
    let free = TWO.replace(r#""jitter": "1ms""#, r#""jitter": "1ms", "order": "free""#);
    assert!(lines(&plan(&config(&free))).iter().all(|line| !line.contains("gbit")), "{free}");
    let reverse: Vec<&String> =
        made.iter().filter(|line| line.starts_with("tc ") && line.contains("dev p1x")).collect();
    assert!(reverse.last().is_some_and(|line| line.ends_with("netem limit 21 delay 10000us")), "{reverse:?}");
}

#[test]
fn each_step_that_makes_a_device_removes_just_that_device() {
    for step in plan(&config(TWO)).into_iter().chain(needs(&config(TWO)).into_iter().map(|(_, step)| step)) {
        let makes = step.command[..3] == ["ip", "link", "add"];
        assert_eq!(step.undo.is_some(), makes, "{step:?}");
        let Some(undo) = step.undo else { continue };
        assert_eq!(undo[..4], ["ip", "link", "delete", "dev"]);
        let name = step.command.iter().position(|word| word == &undo[4]).expect("it removes what it names");
        assert_eq!(step.command[name - 1], "name", "{undo:?} of {:?}", step.command);
    }
}

#[test]
fn a_pair_is_removed_by_the_end_that_stays_in_this_namespace() {
    let undone: Vec<String> =
        plan(&config(TWO)).into_iter().filter_map(|step| step.undo).map(|words| words[4].clone()).collect();
    assert_eq!(undone, ["s1", "p0", "p0x", "p0y", "p1", "p1x", "p1y"]);
}

#[test]
fn ways_are_those_of_the_emulator_over_tap() {
    let directions = directions(&config(TWO));
    let told: Vec<_> = directions
        .iter()
        .map(|direction| (direction.from.as_str(), direction.to.as_str(), direction.delivered.clone()))
        .collect();
    let out = |device: &str| Passage::Out(device.to_owned());
    assert_eq!(
        told,
        [
            ("h1-eth0", "s1", out("p0y")),
            ("s1", "h1-eth0", out("p0x")),
            ("h2-eth0", "s1", out("p1y")),
            ("s1", "h2-eth0", out("p1x"))
        ]
    );
}

const BARE: &str = r#"{"ends": ["h1-eth0", "s1"]}, {"ends": ["s1", "h2-eth0"]}"#;

#[test]
fn a_link_that_shapes_nothing_is_one_pair_and_needs_no_qdisc() {
    let config = config(BARE);
    let made = lines(&plan(&config));
    assert!(made.iter().any(|line| line == "ip link add name h2-eth0 type veth peer name p1x"), "{made:#?}");
    assert!(made.iter().any(|line| line == "ip link set dev p1x master s1 up"), "{made:#?}");
    assert!(made.iter().all(|line| line.starts_with("ip link ")), "{made:#?}");
    assert!(needs(&config).iter().all(|(_, step)| step.command[0] == "ip"));
    let all = needs(&self::config(TWO));
    assert_eq!(all.iter().filter(|(_, step)| step.command[0] == "tc").count(), 2);
}

#[test]
fn a_link_between_switches_or_hosts_that_shapes_nothing_needs_no_qdisc() {
    for links in [
        r#""switches": ["s1", "s2"], "links": [{"ends": ["h1-eth0", "s1"]}, {"ends": ["s1", "s2"]},
            {"ends": ["s2", "h2-eth0"]}]"#,
        r#""links": [{"ends": ["h1-eth0", "h2-eth0"]}]"#,
    ] {
        let text = format!(r#"{{"devices": ["h1-eth0", "h2-eth0"], {links}}}"#);
        let config = Config::read(&text).expect("a sound configuration");
        let made = lines(&plan(&config));
        assert!(made.iter().all(|line| line.starts_with("ip link ")), "{made:#?}");
        assert!(needs(&config).iter().all(|(_, step)| step.command[0] == "ip"));
    }
}

#[test]
fn a_direction_that_shapes_nothing_has_no_qdisc() {
    let made = lines(&plan(&config(
        r#"{"ends": ["h1-eth0", "s1"], "delay": "1ms", "reverse": {}}, {"ends": ["h2-eth0", "s1"]}"#,
    )));
    let shaped: Vec<&String> = made.iter().filter(|line| line.starts_with("tc ")).collect();
    assert!(shaped.len() == 1 && shaped[0].starts_with("tc qdisc add dev p0y root handle 10: netem"), "{shaped:?}");
}

#[test]
fn a_bare_link_is_counted_where_its_one_device_receives_and_sends() {
    let ways: Vec<_> = directions(&config(BARE)).into_iter().map(|way| (way.from, way.offered, way.is_lossy)).collect();
    let [first, second] = ["p0x", "p1x"].map(str::to_owned);
    assert_eq!(
        ways,
        [
            ("h1-eth0".to_owned(), Passage::In(first.clone()), false),
            ("s1".to_owned(), Passage::Out(first), false),
            ("s1".to_owned(), Passage::Out(second.clone()), false),
            ("h2-eth0".to_owned(), Passage::In(second), false),
        ]
    );
}
