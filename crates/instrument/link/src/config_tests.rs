//! What a configuration may say, and the error for each mistake.

use super::*;

fn link(keys: &str) -> Result<Config, ConfigError> {
    Config::read(&format!(r#"{{"devices": ["a", "b"], "links": [{{"ends": ["a", "b"]{keys}}}]}}"#))
}

#[test]
fn a_link_is_what_its_keys_say() {
    let config = link(
        r#", "rate": "100Mbit", "delay": "10ms", "jitter": "1ms", "order": "free", "loss": "0.5%", "queue": 7,
            "reverse": {"rate": "1Mbit"}"#,
    )
    .expect("it is valid");
    let [link] = &config.links[..] else { panic!("one link") };
    let forward = Shape {
        rate: Some(100_000_000),
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(1),
        order: Order::Free,
        loss: 0.005,
        queue: 7,
    };
    assert_eq!(link.forward, forward);
    assert_eq!((link.reverse.rate, link.reverse.delay, link.reverse.queue), (Some(1_000_000), Duration::ZERO, 100));
    assert_eq!((config.seed, config.late_after), (0, Duration::from_millis(1)));
}

#[test]
fn a_queue_holds_a_round_trip_of_the_link_and_at_least_a_hundred_packets() {
    for (keys, packets) in [
        (r#", "rate": "1Gbit", "delay": "10ms""#, 1652),
        (r#", "rate": "1Gbit", "delay": "1us""#, 100),
        (r#", "rate": "10Mbit", "delay": "1ms""#, 100),
    ] {
        assert_eq!(link(keys).expect("it is valid").links[0].forward.queue, packets, "{keys}");
    }
    // 50 ms there and back, whatever part of it each way takes.
    let apart = r#", "rate": "1Gbit", "delay": "1ms", "reverse": {"rate": "1Gbit", "delay": "49ms"}"#;
    let config = link(apart).expect("it is valid");
    assert_eq!((config.links[0].forward.queue, config.links[0].reverse.queue), (4129, 4129));
    let given = link(r#", "rate": "1Gbit", "delay": "50ms", "queue": 7, "reverse": {"rate": "1Gbit"}"#);
    let given = &given.expect("it is valid").links[0];
    assert_eq!((given.forward.queue, given.reverse.queue), (7, 4129));
}

#[test]
fn large_segments_are_cut_where_a_host_could_tell() {
    for (keys, whole) in [
        ("", true),
        (r#", "rate": "1Gbit""#, true),
        (r#", "rate": "999Mbit""#, false),
        (r#", "rate": "1Gbit", "queue": 91"#, true),
        (r#", "rate": "1Gbit", "queue": 90"#, false),
        (r#", "loss": "0.1%""#, false),
        (r#", "delay": "1ms", "jitter": "1ms""#, true),
        (r#", "delay": "1ms", "jitter": "1ms", "order": "free""#, false),
        (r#", "reverse": {"loss": "1%"}"#, false),
    ] {
        assert_eq!(link(keys).expect("it is valid").whole_segments, whole, "{keys}");
    }
}

#[test]
fn a_mistake_is_refused_with_what_is_wrong_and_what_to_write() {
    for (json, said) in [
        (r#"{"devices": [], "links": [], "sed": 1}"#, "unknown field `sed`"),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "latency": "1ms"}]}"#, "unknown field `latency`"),
        (r#"{"devices": ["a"], "links": [{"ends": ["a"]}]}"#, "`ends` has 1 names; a link joins two"),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "rate": "100mbit"}]}"#, "`rate`: '100mbit'"),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "delay": "1"}]}"#, "such as 250ms"),
        (
            r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "jitter": "1ms"}]}"#,
            "`jitter` is more than `delay`",
        ),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "loss": "101%"}]}"#, "more than 100%"),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "rate": "1Mbit", "queue": 0}]}"#, "at least 1"),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "queue": 9}]}"#, "`queue` needs a `rate`"),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "order": "free"}]}"#, "without `jitter`"),
        (r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "reverse": {"queue": 9}}]}"#, "a - b, reverse"),
        (r#"{"devices": ["a"], "links": [{"ends": ["a", "s1"]}]}"#, "`s1` is neither in `devices` nor in `switches`"),
        (r#"{"devices": ["a", "a"], "links": []}"#, "named twice"),
        (r#"{"devices": ["a"], "links": []}"#, "is in 0 links"),
        (r#"{"devices": ["a/b"], "links": []}"#, "cannot name an interface"),
        (r#"{"devices": ["sixteen-letters-"], "links": []}"#, "cannot name an interface"),
        (
            r#"{"devices": [], "switches": ["s", "t"], "links": [{"ends": ["s", "t"]}, {"ends": ["t", "s"]}]}"#,
            "form a loop",
        ),
        (r#"{"devices": [], "switches": ["s"], "links": [{"ends": ["s", "s"]}]}"#, "form a loop"),
    ] {
        let error = Config::read(json).expect_err(json).to_string();
        assert!(error.contains(said), "{json}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn toml_means_the_same_as_json() {
    let json = r#"
        {"seed": 3, "devices": ["a", "b"], "switches": ["s"], "links": [
            {"ends": ["a", "s"], "rate": "100Mbit", "delay": "1ms", "reverse": {"rate": "1Mbit"}},
            {"ends": ["b", "s"], "loss": "0.1%"}]}"#;
    let toml = r#"
        # two hosts on a switch
        seed     = 3
        devices  = ["a", "b"]
        switches = ["s"]
        [[links]]
        ends    = ["a", "s"]
        rate    = "100Mbit"
        delay   = "1ms"
        reverse = { rate = "1Mbit" }
        [[links]]
        ends = ["b", "s"]
        loss = "0.1%"
    "#;
    assert_eq!(Config::read(toml).expect("it is valid"), Config::read(json).expect("it is valid"));
}

#[test]
fn a_third_end_is_refused_in_toml_as_in_json() {
    let toml = "devices = [\"a\", \"b\"]\n[[links]]\nends = [\"a\", \"b\", \"c\"]";
    let json = r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b", "c"]}]}"#;
    for text in [toml, json] {
        let error = Config::read(text).expect_err(text).to_string();
        assert!(error.starts_with("link a - b - c: `ends` has 3 names"), "{error}");
    }
}

#[test]
fn a_mistake_in_toml_is_refused_with_its_line() {
    for (toml, said) in [
        ("devices = []\nlinks = []\nsed = 1", "unknown field `sed`"),
        ("devices = [\"a\", \"b\"]\n[[links]]\nends = [\"a\", \"b\"]\nlatency = \"1ms\"", "line 4"),
        ("devices = [\"a\"]\nlinks = [", "line 2"),
        ("devices = [\"a\"]", "missing field `links`"),
        ("", "missing field `devices`"),
        ("ends: nowhere", "line 1"),
        ("devices = [\"a\", \"b\"]\n[[links]]\nends = [\"a\", \"b\"]\nqueue = -1", "line 4"),
    ] {
        let error = Config::read(toml).expect_err(toml).to_string();
        assert!(error.contains(said) && error.contains("docs/networks.md"), "{toml}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
