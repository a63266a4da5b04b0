//! What this machine may refuse a forwarder at any time, by strace(1): sockets, ways to a server,
//! pipes, rings and descriptor tables. The forwarder goes on, counts it, and says it.

use std::process::Command;

use crate::support::forwarder::{Forwarder, command, echo, exchange};
use crate::support::server::may_trace;

#[test]
fn descriptors_that_the_coordinator_leaves_open_are_counted() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    let mappings = [mapping.as_str(); 10];
    for (accept, least) in [("exclusive", 10), ("handoff", 10), ("reuseport", 20)] {
        let inner = command(&[&mappings[..], &["--accept", accept, "--workers", "2"]].concat());
        let mut outer = Command::new("strace");
        // It follows the first thread alone, which is the coordinator: that closes nothing, and
        // its listeners are left.
        outer.args(["-D", "-qq", "-o", "/dev/null", "-e", "trace=close", "-e", "inject=close:retval=0:when=1+"]);
        outer.arg(inner.get_program()).args(inner.get_args());
        let forwarder = Forwarder::spawn(outer);
        exchange(&mut forwarder.connect());
        let summary = forwarder.stop_leaking();
        let counted = summary["leaked"]["descriptors"].as_u64().expect("a count");
        assert!(counted >= least, "{accept}: {summary}");
    }
}
