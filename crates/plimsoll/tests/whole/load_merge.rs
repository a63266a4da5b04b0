//! `plimsoll merge`: what several generators wrote, as one.

use std::process::Command;

use crate::support::network::ScratchFolder;
use crate::support::peer::{command, echo, load, outcome};

#[test]
fn two_generators_become_one_record() {
    let folder = std::env::temp_dir().join(format!("plimsoll-merge-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let target = echo();
    // A second each, so that they measure at one time however slowly a busy machine starts them.
    let begin = |arguments: &str| command("echo", &target.to_string(), arguments).spawn().expect("the binary runs");
    let parts = [begin("-n 300 -c 3 --think 10ms"), begin("-n 500 -c 5 -s 100 --think 10ms")];
    let parts = parts.map(|part| outcome(&part.wait_with_output().expect("it ends")));
    let mut merge = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    merge.args(["merge", "--limit", "requests.completed >= 800"]);
    for (part, name) in parts.iter().zip(["a.json", "b.json"]) {
        let lines: Vec<String> = part.lines.iter().map(ToString::to_string).collect();
        std::fs::write(folder.join(name), lines.join("\n") + "\n").expect("a file");
        merge.arg(folder.join(name));
    }
    let merged = outcome(&merge.output().expect("the binary runs"));
    assert_eq!(merged.code, Some(0), "{}", merged.stderr);
    assert_eq!((merged.count("requests.completed"), merged.count("response_time_us.count")), (800, 800));
    assert_eq!((merged.count("connections.established"), merged.count("establishment_time_us.count")), (8, 8));
    assert_eq!(merged.count("bytes_sent"), 300 * 64 + 500 * 100);
    let slowest = parts.iter().map(|part| part.figure("response_time_us.max")).fold(0.0, f64::max);
    assert_eq!(merged.figure("response_time_us.max"), slowest);
    // A record named twice, as `*.json` may name a copy, would count twice.
    std::fs::copy(folder.join("a.json"), folder.join("copy.json")).expect("a copy");
    let twice = outcome(&merge.arg(folder.join("copy.json")).output().expect("the binary runs"));
    assert!(twice.code == Some(2) && twice.stderr.contains("one and the same record"), "{}", twice.stderr);
    std::fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn the_whole_is_judged_by_its_own_figures() {
    let folder = ScratchFolder::new();
    let mut merge = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    merge.arg("merge");
    let part = load(echo(), "-n 600 -c 4");
    assert!(part.warnings().contains(&"few_samples"), "{}", part.summary());
    // Two at one time: the first had its connections for nine tenths of it.
    for (number, available) in [(0, 0.9), (1, 0.98)] {
        let mut record = part.summary().clone();
        record["available_ratio"] = available.into();
        record["connections"]["ended_idle"] = 1.into();
        record["seeds"] = vec![number].into();
        let own = serde_json::json!({"code": "connections_unavailable", "message": "", "remedy": ""});
        record["warnings"].as_array_mut().expect("a list").push(own);
        let file = folder.0.join(format!("{number}.json"));
        std::fs::write(&file, record.to_string()).expect("a file");
        merge.arg(file);
    }
    let merged = outcome(&merge.output().expect("the binary runs"));
    let told = merged.summary().to_string();
    assert_eq!(merged.code, Some(0), "{}", merged.stderr);
    assert!((merged.figure("available_ratio") - 0.94).abs() < 1e-3, "{told}");
    assert!(!merged.warnings().contains(&"few_samples"), "it has 1,200: {told}");
    let unavailable = merged.warnings().into_iter().filter(|code| *code == "connections_unavailable").count();
    assert!(unavailable == 1 && told.contains("connections could be used for 94 % of the time"), "{told}");
}

#[test]
fn generators_that_ran_one_after_the_other_are_refused() {
    let folder = std::env::temp_dir().join(format!("plimsoll-apart-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut merge = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    merge.arg("merge");
    for name in ["a.json", "b.json"] {
        let part = load(echo(), "-n 10 -c 1");
        std::fs::write(folder.join(name), part.summary().to_string()).expect("a file");
        merge.arg(folder.join(name));
    }
    let output = merge.output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::remove_dir_all(folder).expect("it is there");
    assert!(output.status.code() == Some(1) && said.contains("start the generators together"), "{said}");
}

#[test]
fn what_is_no_record_is_refused() {
    for file in ["/dev/null", "/no/such/file", "/proc/self/stat"] {
        let mut merge = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = merge.args(["merge", file]).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("name a file"), "{file}");
    }
}
