//! How near an emulated link is to what it was asked for. Needs root. `bench/link_grid.py` has more
//! settings.

use crate::skip_without_namespaces;
use crate::support::network::Pair;

#[test]
fn requests_take_the_round_trip_of_the_link() {
    skip_without_namespaces!();
    let pair = Pair::new(r#", "rate": "100Mbit", "delay": "1ms""#);
    let (_server, address) = pair.echo();
    let summary = pair.load(&address, &["-c", "1", "-n", "2000"]);
    let median = summary["response_time_us"]["p50"].as_f64().expect("a number");
    // 2 ms of delay, 40 us of sending a frame each way, and the stacks, wake-ups and programs of
    // both hosts.
    assert!((2000.0..2600.0).contains(&median), "{median} us");
}

#[test]
fn goodput_is_the_rate_less_the_headers() {
    skip_without_namespaces!();
    // Whole segments at 1 Gbit/s, cut ones at 50 Mbit/s: both are charged by what they are on the
    // wire.
    for (rate, whole, bits, size) in [("1Gbit", "whole", 1e9, "4MiB"), ("50Mbit", "cut", 50e6, "512KiB")] {
        let pair = Pair::new(&format!(r#", "rate": "{rate}", "delay": "100us", "queue": 2000"#));
        assert_eq!(pair.link.ready["large_segments"], whole);
        let (_server, address) = pair.echo();
        // 1448 bytes of payload in each frame of 1514 (TCP with timestamps).
        let most = bits * 1448.0 / 1514.0;
        // Requests that are under way at the window's edges cost some of it, or add to it.
        let summary = pair.load(&address, &["-c", "4", "-d", "3s", "-s", size, "--verify", "length"]);
        let goodput = summary["goodput_bits_per_s"].as_f64().unwrap_or_else(|| panic!("{summary}"));
        assert!((0.8 * most..1.1 * most).contains(&goodput), "{goodput} of {most} at {rate}");
    }
}
