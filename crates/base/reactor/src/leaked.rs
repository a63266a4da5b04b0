//! What a server has taken and not given back by its end. Every figure of a server without a fault
//! is 0.

use std::fmt;

use serde::Serialize;

/// By kind, what was taken less what was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leaked {
    /// Descriptors in the tables of the process.
    pub descriptors: u64,
    /// Pipes that bytes move through.
    pub pipes: u64,
    /// Places of connections: in an event loop's memory, in a ring's table, and under the limit of
    /// connections.
    pub slots: u64,
    /// Timers that are set.
    pub timers: u64,
    /// Buffers of a ring's pool.
    pub buffers: u64,
    /// Requests to a ring whose completion has not come.
    pub requests: u64,
}

impl Leaked {
    fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("descriptors", self.descriptors),
            ("pipes", self.pipes),
            ("slots", self.slots),
            ("timers", self.timers),
            ("buffers", self.buffers),
            ("requests", self.requests),
        ]
    }

    /// Adds what another part of the server has leaked.
    pub fn add(&mut self, part: &Leaked) {
        self.descriptors += part.descriptors;
        self.pipes += part.pipes;
        self.slots += part.slots;
        self.timers += part.timers;
        self.buffers += part.buffers;
        self.requests += part.requests;
    }

    /// Whether everything was given back.
    pub fn is_nothing(&self) -> bool {
        self.parts().iter().all(|(_, count)| *count == 0)
    }
}

impl fmt::Display for Leaked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self
            .parts()
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        formatter.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_added_and_said() {
        let mut all = Leaked { descriptors: 1, pipes: 2, slots: 3, timers: 4, buffers: 5, requests: 6 };
        all.add(&Leaked { descriptors: 10, pipes: 20, slots: 30, timers: 40, buffers: 50, requests: 60 });
        assert_eq!(all.to_string(), "descriptors 11, pipes 22, slots 33, timers 44, buffers 55, requests 66");
        assert_eq!(Leaked { pipes: 1, ..Leaked::default() }.to_string(), "pipes 1");
        assert!(Leaked::default().is_nothing());
        for kind in 0..6 {
            let mut counts = [0; 6];
            counts[kind] = 1;
            let [descriptors, pipes, slots, timers, buffers, requests] = counts;
            assert!(!Leaked { descriptors, pipes, slots, timers, buffers, requests }.is_nothing());
        }
    }
}
