//! What the window of a loop has in it, as it opens and closes, and of a count.

use super::*;

#[test]
fn a_count_ends_with_its_last_request_and_connections_are_opened_after_it() {
    let closed = Pace::Closed { think: Think::None, phase: Start::Spread };
    let mut config = Config { connections: 3, stop_condition: StopCondition::Requests(1), ..config(closed) };
    // The second is to be opened after an hour.
    config.opening.rate = Some(1.0 / 3600.0);
    let mut event_loop = EventLoop::new(Arc::new(shared(config, echo())), 0, 0, Silent::default());
    event_loop.shared.control.gate.set(0);
    event_loop.shared.control.opens.set(0);
    event_loop.pass_openings(event_loop.now());
    event_loop.open_connections();
    connect_all(&mut event_loop);
    let key = event_loop.due.pop_front().expect("its request is due");
    event_loop.begin_due(key);
    assert_eq!((event_loop.sockets.sent, event_loop.shared.control.closes.get()), (64, None));
    event_loop.lose(key, Cause::Closed);
    let lost = event_loop.now();
    event_loop.tell_ended();
    let closes = event_loop.shared.control.closes.get().expect("the count has ended");
    assert!(closes <= lost);
    event_loop.close_window_by(event_loop.now());
    assert!(!event_loop.is_finished() && event_loop.may_open(HOUR) && !event_loop.may_open(HOUR - 1));
    // The one that was lost is opened again after its wait.
    let key = event_loop.slab.keys().next().expect("it is there");
    event_loop.return_to_service(key, event_loop.now());
    connect_all(&mut event_loop);
    assert_eq!((event_loop.slab.is_empty(), event_loop.sockets.sent), (true, 64), "it has nothing more to do");
    let books = books(event_loop);
    assert_eq!((books.ended_at, books.connections.established, books.connections.reopened), (closes, 1, 1));
    let requests = books.window.requests;
    assert_eq!((requests.scheduled, requests.failed, requests.unsent), (1, 1, 0));
    // Two of three were never up in the window.
    assert!((2 * closes..=3 * closes).contains(&books.connections.unavailable_ns));
}

#[test]
fn nothing_is_sent_as_a_signal_ends_the_warm_up_and_nothing_of_it_is_in_the_window() {
    let mut event_loop = open_loop(|config| config.warm_up = Duration::from_nanos(HOUR));
    event_loop.shared.control.opens.set(HOUR);
    event_loop.shared.control.closes.set(2 * HOUR);
    // Two are under way, and many more are due.
    event_loop.dispatch(2);
    let sent = event_loop.sockets.sent;
    let now = event_loop.now();
    event_loop.shared.control.interrupt(now);
    event_loop.close_window_by(event_loop.now());
    assert_eq!((sent, event_loop.sockets.sent), (2 * 64, 2 * 64));
    let books = books(event_loop);
    let warm_up = books.warm_up.expect("there was one");
    assert_eq!((warm_up.sent, warm_up.requests.in_flight), (2, 2));
    assert_eq!((books.window.sent, books.window.requests), (0, Requests::default()));
    assert_eq!(books.window.unanswered.count(), 0);
}

#[test]
fn what_ends_once_the_window_has_opened_is_of_it_though_the_loop_is_yet_to_open_it() {
    let mut event_loop = open_loop(|config| config.warm_up = Duration::from_nanos(HOUR));
    event_loop.dispatch(1);
    let is_busy = |key: &Key| event_loop.slab.get(*key).is_some_and(|one| one.state == State::Busy);
    let key = event_loop.slab.keys().find(is_busy).expect("one is under way");
    event_loop.shared.control.opens.set(event_loop.now());
    event_loop.lose(key, Cause::Closed);
    let books = books(event_loop);
    let warm_up = books.warm_up.expect("there was one").requests;
    assert_eq!((warm_up.in_flight, warm_up.failed, books.window.requests.failed), (1, 0, 1));
}

#[test]
fn a_request_whose_connect_fails_as_the_window_opens_is_one_of_the_count() {
    let mut event_loop = open_loop(|config| {
        config.warm_up = Duration::from_nanos(HOUR);
        config.stop_condition = StopCondition::Requests(2);
        config.opening.reconnect = true;
    });
    event_loop.sockets.refuses = true;
    event_loop.shared.control.opens.set(event_loop.now());
    event_loop.dispatch(1);
    assert_eq!(event_loop.shared.control.unclaimed(), 1);
    assert_eq!(books(event_loop).window.requests.failed, 1);
}

#[test]
fn bytes_that_were_sent_before_the_window_are_not_its_own() {
    let mut event_loop = open_loop(|config| config.warm_up = Duration::from_nanos(HOUR));
    event_loop.dispatch(2);
    event_loop.shared.control.opens.set(event_loop.now());
    event_loop.pass_openings(event_loop.now());
    event_loop.dispatch(3);
    let books = books(event_loop);
    let warm_up = books.warm_up.expect("there was one");
    assert_eq!(
        [(warm_up.sent, warm_up.bytes_sent), (books.window.sent, books.window.bytes_sent)],
        [(2, 128), (3, 192)]
    );
}

#[test]
fn a_loop_that_ends_before_the_window_used_none_of_its_cpu_time() {
    let event_loop = open_loop(|config| config.warm_up = Duration::from_nanos(HOUR));
    assert_ne!(clock::thread_cpu_time(), Duration::ZERO);
    let result = event_loop.finish();
    assert_eq!((result.cpu, result.run_queue), (Duration::ZERO, Duration::ZERO));
}

#[test]
fn what_is_due_as_the_window_closes_is_sent() {
    let mut event_loop = open_loop(|_| ());
    event_loop.shared.control.opens.set(0);
    event_loop.pass_openings(event_loop.now());
    let now = event_loop.now();
    // Not all that came in a sleep is read yet.
    (event_loop.slept_at, event_loop.entered) = (now, now);
    event_loop.shared.control.interrupt(now);
    event_loop.close_window_by(event_loop.now());
    assert_eq!(event_loop.sockets.sent, 10 * 64, "one on each connection");
    assert_eq!(books(event_loop).window.requests.in_flight, 10);
}

#[test]
fn a_request_that_times_out_before_a_connection_is_free_is_one_of_those_of_each() {
    let mut event_loop = open_loop(|config| {
        config.stop_condition = StopCondition::Each(3);
        config.timeout = Duration::from_nanos(1);
    });
    event_loop.shared.control.opens.set(0);
    event_loop.pass_openings(event_loop.now());
    // More than there are to send.
    event_loop.dispatch(1000);
    assert!(event_loop.slab.is_empty(), "every connection has had its requests");
    let requests = books(event_loop).window.requests;
    assert_eq!((requests.scheduled, requests.timed_out), (3 * 10, 3 * 10));
}
