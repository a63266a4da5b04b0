//! Groups of threads that stand for event loops.

use super::*;
use crate::interleavings::interleavings;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::yield_now();
    }
}

#[test]
fn each_table_has_descriptor_numbers_of_its_own() {
    let (opened, numbers) = mpsc::channel();
    let opened = Mutex::new(opened);
    let mut group = WorkerGroup::new(1, Growth::Never, move |handle| {
        let file = File::open("/dev/null").expect("/dev/null opens");
        let opened = opened.lock().expect("no test thread panics").clone();
        opened.send(file.as_raw_fd()).expect("the test listens");
        until("the stop", || handle.phase() == Phase::Stop);
    })
    .expect("an event can be made");
    group.add_table(0).expect("a table");
    let first = numbers.recv().expect("the first table opened its file");
    let seen_here = std::fs::read_link(format!("/proc/self/fd/{first}")).unwrap_or_default();
    assert_ne!(seen_here, std::path::Path::new("/dev/null"), "the coordinator does not see it");
    group.add_table(0).expect("a table");
    numbers.recv().expect("the second table opened its file");
    group.set_phase(Phase::Stop);
    assert_eq!(group.join().len(), 2);
}

#[test]
fn a_table_that_began_empty_has_what_its_mailbox_brings() {
    let kept_here = File::open("/dev/null").expect("/dev/null opens");
    let number = kept_here.as_raw_fd();
    let mut group = WorkerGroup::new(1, Growth::Never, move |handle| {
        let seen = std::fs::read_link(format!("/proc/thread-self/fd/{number}")).unwrap_or_default();
        let mailbox = handle.mailbox().expect("it began empty");
        let (mut message, mut descriptors) = ([0; 8], Vec::new());
        until("a message", || passing::receive(mailbox, &mut message, &mut descriptors).is_ok());
        let received = format!("/proc/thread-self/fd/{}", descriptors[0].as_raw_fd());
        (seen, std::fs::read_link(received).unwrap_or_default())
    })
    .expect("an event can be made")
    .with_table_init(TableInit::Empty);
    group.add_table(0).expect("a table");
    let (_, mailbox) = group.mailboxes().next().expect("a table that began empty has one");
    passing::send(mailbox, b"a file", &[kept_here.as_fd()]).expect("the mailbox has room");
    let (seen, received) = group.join().remove(0);
    assert_ne!(seen, std::path::Path::new("/dev/null"));
    assert_eq!(received, std::path::Path::new("/dev/null"));
}

#[test]
fn tables_that_have_ended_take_no_message_and_leave_no_descriptor_with_the_coordinator() {
    let outcome = thread::spawn(|| {
        descriptor::unshare_table().expect("a table of its own, where no other test opens anything");
        let before = descriptor::count_open();
        let mut group = WorkerGroup::new(1, Growth::Never, |handle: LoopHandle| {
            until("the stop", || handle.phase() == Phase::Stop);
        })
        .expect("an event can be made")
        .with_table_init(TableInit::Empty);
        for _ in 0..3 {
            group.add_table(0).expect("a table");
        }
        group.set_phase(Phase::Stop);
        for (_, mailbox) in group.mailboxes() {
            // Nobody takes any, so that the mailbox is full in the end.
            until("the end of the mailbox", || {
                passing::send(mailbox, b"x", &[]).is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
            });
        }
        group.join();
        (before, descriptor::count_open())
    });
    let (before, after) = outcome.join().expect("no panic");
    assert_eq!(before, after);
}

#[test]
fn a_full_table_passes_the_turn_to_a_new_one_and_gets_it_back_when_that_is_full() {
    let turns: Arc<Mutex<Vec<usize>>> = Arc::default();
    let log = Arc::clone(&turns);
    let first_has_room = AtomicBool::new(false);
    let mut group = WorkerGroup::new(1, Growth::AsNeeded, move |handle| {
        let take_turn = || {
            until("a turn", || handle.holds_accept_token() || handle.phase() != Phase::Run);
            log.lock().expect("no test thread panics").push(handle.table());
        };
        take_turn();
        if handle.table() == 1 {
            until("room in the first table", || first_has_room.load(Ordering::Acquire));
        }
        handle.report_full();
        until("the turn's passing", || !handle.holds_accept_token());
        if handle.table() == 0 {
            handle.report_room();
            first_has_room.store(true, Ordering::Release);
            take_turn();
        }
    })
    .expect("an event can be made");
    group.add_table(0).expect("a table");
    until("the end of both tables", || {
        assert!(group.process_requests().refused.is_none());
        group.table_count() == 2 && group.is_finished()
    });
    group.join();
    assert_eq!(*turns.lock().expect("no test thread panics"), [0, 1, 0]);
}

#[test]
fn a_table_whose_loop_cannot_begin_is_refused_and_the_others_go_on() {
    let out_of_memory = || io::Error::from_raw_os_error(12);
    let lacks = Arc::new(AtomicBool::new(false));
    let is_short = Arc::clone(&lacks);
    let mut group = WorkerGroup::new(1, Growth::AsNeeded, move |handle: LoopHandle| {
        let make = || if is_short.load(Ordering::Acquire) { Err(out_of_memory()) } else { Ok(()) };
        if handle.set_up(make).is_err() {
            return;
        }
        if handle.table() == 0 {
            handle.report_full();
        }
        until("the stop", || handle.phase() == Phase::Stop);
    })
    .expect("an event can be made")
    .with_setup();
    lacks.store(true, Ordering::Release);
    assert_eq!(group.add_table(0).map_err(|error| error.raw_os_error()), Err(Some(12)));
    lacks.store(false, Ordering::Release);
    group.add_table(0).expect("a table");
    lacks.store(true, Ordering::Release);
    let mut refused = None;
    until("the wish for a second table", || {
        refused = group.process_requests().refused;
        refused.is_some()
    });
    assert_eq!(refused.and_then(|error| error.raw_os_error()), Some(12));
    assert!(!group.any_finished() && group.table_count() == 1, "the first one goes on");
    assert!(!group.process_requests().raised, "the coordinator would try again and again");
    lacks.store(false, Ordering::Release);
    assert!(group.process_requests().refused.is_none());
    assert_eq!(group.table_count(), 2);
    group.set_phase(Phase::Stop);
    assert_eq!(group.join().len(), 2);
}

/// A worker with so many tables, whose threads have left their handles here and end with what is
/// returned last.
fn handles(tables: usize) -> (WorkerGroup<()>, Vec<LoopHandle>, mpsc::Sender<()>) {
    let ((hand_over, handles), (end, ended)) = (mpsc::channel(), mpsc::channel());
    let (hand_over, ended) = (Mutex::new(hand_over), Mutex::new(ended));
    let mut group = WorkerGroup::new(1, Growth::Never, move |handle| {
        hand_over.lock().expect("no test thread panics").send(handle).expect("the test listens");
        let _ = ended.lock().expect("no test thread panics").recv();
    })
    .expect("an event can be made");
    let handles = (0..tables).map(|_| {
        group.add_table(0).expect("a table");
        handles.recv().expect("each hands its own over")
    });
    let handles = handles.collect();
    (group, handles, end)
}

#[test]
fn the_accept_token_finds_a_table_with_room_in_whatever_order_tables_and_coordinator_act() {
    // By table: whether it reports that it is full (false) or has room (true), step by step.
    let reports: [&[bool]; 3] = [&[], &[false], &[false, true]];
    let cases = reports.iter().flat_map(|first| reports.iter().map(move |second| [*first, *second]));
    for tables in cases {
        for order in interleavings(&[tables[0].len(), tables[1].len(), 2]) {
            let (mut group, handles, end) = handles(2);
            let mut left = tables;
            for party in &order {
                match (handles.get(*party), left.get_mut(*party)) {
                    (Some(handle), Some(reports)) => {
                        if reports[0] {
                            handle.report_room()
                        } else {
                            handle.report_full()
                        }
                        *reports = &reports[1..];
                    }
                    // The coordinator is called where it is asked for.
                    _ => drop(group.process_requests()),
                }
            }
            while group.process_requests().raised {}
            let has_room = tables.map(|reports| reports.last().is_none_or(|room| *room));
            let holds = [0, 1].map(|table| handles[table].holds_accept_token());
            assert_eq!(holds.iter().filter(|holds| **holds).count(), 1, "{tables:?} {order:?}");
            let is_well = !has_room.contains(&true) || (0..2).any(|table| has_room[table] && holds[table]);
            assert!(is_well, "{tables:?} {order:?}: the token is at a full table");
            drop((handles, end));
            group.join();
        }
    }
}

#[test]
fn one_table_of_a_worker_runs_at_a_time() {
    let running = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&running);
    let mut group = WorkerGroup::new(1, Growth::Never, move |handle| {
        for _ in 0..200 {
            let run_lock = handle.run_lock();
            assert_eq!(count.fetch_add(1, Ordering::AcqRel), 0);
            thread::yield_now();
            count.fetch_sub(1, Ordering::AcqRel);
            drop(run_lock);
        }
    })
    .expect("an event can be made");
    for _ in 0..3 {
        group.add_table(0).expect("a table");
    }
    assert_eq!(group.join().len(), 3);
}

#[test]
fn a_request_that_is_raised_before_it_is_processed_is_told_once() {
    let mut group = WorkerGroup::<()>::new(1, Growth::Never, |_| {}).expect("an event can be made");
    assert!(!group.process_requests().raised);
    group.request().raise();
    group.request().raise();
    assert!(group.process_requests().raised);
    assert!(!group.process_requests().raised);
}
