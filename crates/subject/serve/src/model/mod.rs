//! The I/O models, one a file: each opens with what the mechanism is, its rule, and the classic
//! mistakes that it must not make.

pub(crate) mod epoll;
pub(crate) mod epoll_et;
pub(crate) mod fork;
pub(crate) mod poll;
pub(crate) mod select;
pub(crate) mod threads;
pub(crate) mod uring;

use std::fmt;
use std::str::FromStr;

/// How a server waits for many connections at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// A thread a connection.
    Threads,
    /// A process a connection.
    Fork,
    /// select(2).
    Select,
    /// poll(2).
    Poll,
    /// epoll(7), level-triggered.
    Epoll,
    /// epoll(7), edge-triggered.
    EpollEt,
    /// io_uring(7).
    Uring,
}

impl Model {
    /// Every model, from the oldest idea to the newest.
    pub const ALL: [Model; 7] =
        [Model::Threads, Model::Fork, Model::Select, Model::Poll, Model::Epoll, Model::EpollEt, Model::Uring];

    /// Its name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Model::Threads => "threads",
            Model::Fork => "fork",
            Model::Select => "select",
            Model::Poll => "poll",
            Model::Epoll => "epoll",
            Model::EpollEt => "epoll-et",
            Model::Uring => "uring",
        }
    }

    /// Whether it runs event loops, whose number can be chosen.
    pub fn has_workers(self) -> bool {
        !matches!(self, Model::Threads | Model::Fork)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A name that is no model's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no model `{0}`; use one of threads, fork, select, poll, epoll, epoll-et, uring")]
pub struct UnknownModel(String);

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Model, UnknownModel> {
        Model::ALL.into_iter().find(|model| model.name() == name).ok_or_else(|| UnknownModel(name.to_owned()))
    }
}
