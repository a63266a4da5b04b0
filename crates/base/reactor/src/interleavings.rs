//! Every order in which several parties' steps can follow each other.
//!
//! For tests of what threads share: the real thing, called from one thread in all orders of its
//! calls. Loom would give false alarms: it takes SeqCst for AcqRel (its README), and the places of
//! `limit.rs` and the tables of `worker_group.rs` rest on SeqCst. Nor does it know descriptors.

/// The orders, each as the parties whose turn it is, where every party has so many steps.
pub(crate) fn interleavings(steps: &[usize]) -> Vec<Vec<usize>> {
    if steps.iter().all(|left| *left == 0) {
        return vec![Vec::new()];
    }
    let mut orders = Vec::new();
    for party in (0..steps.len()).filter(|party| steps[*party] > 0) {
        let mut left = steps.to_vec();
        left[party] -= 1;
        let rest = interleavings(&left);
        orders.extend(rest.into_iter().map(|order| [&[party], &order[..]].concat()));
    }
    orders
}

#[test]
fn there_are_as_many_orders_as_there_should_be() {
    assert_eq!(interleavings(&[2, 1]), [[0, 0, 1], [0, 1, 0], [1, 0, 0]]);
    assert_eq!(interleavings(&[2, 2, 2]).len(), 90);
    assert_eq!(interleavings(&[3, 3, 2]).len(), 560);
}
