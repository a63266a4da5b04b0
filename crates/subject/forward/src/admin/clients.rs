//! The clients of the admin address, served together: a silent client, or a client that does not
//! read, keeps no other waiting. The caller makes the answers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use plimsoll_sys::poll::Place;
use plimsoll_sys::readiness::Interest;

/// A client may take this long for its request, and as long until it reads more of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest head of a request.
const LONGEST_HEAD: usize = 8 * 1024;
/// A client may take this long to read its answer: longer than Prometheus waits (10 s unless told
/// otherwise), and no client keeps its place for ever.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);
/// Clients that are served together. Prometheus and a few people are the clients to expect, and the
/// answer of a large table has megabytes.
const MOST: usize = 16;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Clients(Vec<Client>);

struct Client {
    stream: TcpStream,
    state: ClientState,
    /// When it has taken too long.
    until: Instant,
}

enum ClientState {
    /// Its request has come so far.
    Requesting(Vec<u8>),
    /// The rest of its answer, and the time by which the client has to have read it.
    Answering { answer: Vec<u8>, sent: usize, last: Instant },
    /// It has its answer, and has not closed. A close with unread bytes of the client would be a
    /// reset, which may destroy the answer.
    Answered,
}

impl Clients {
    /// Whether a client can be added: there is a free place, or a client that has its answer.
    pub(super) fn have_room(&self) -> bool {
        self.0.len() < MOST || self.leaving().is_some()
    }

    /// Adds a client that has just connected, if there is room. Its stream does not block.
    pub(super) fn add(&mut self, stream: TcpStream, now: Instant) {
        if self.0.len() >= MOST
            && let Some(place) = self.leaving()
        {
            self.0.remove(place);
        }
        self.0.push(Client { stream, state: ClientState::Requesting(Vec::new()), until: now + PATIENCE });
    }

    /// The place of the first one that has its answer.
    fn leaving(&self) -> Option<usize> {
        self.0.iter().position(|client| matches!(client.state, ClientState::Answered))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What to wait for.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.0.iter().map(|client| {
            let interest = match client.state {
                ClientState::Requesting(_) | ClientState::Answered => Interest::READ,
                ClientState::Answering { .. } => Interest::WRITE,
            };
            Place::new(client.stream.as_raw_fd(), interest)
        })
    }

    /// Until when to wait for it.
    pub(super) fn until(&self) -> Option<Instant> {
        self.0.iter().map(|client| client.until).min()
    }

    /// Serves each client as far as it is ready, and closes those that are done or have taken too
    /// long. `answer` makes the answer to the head of a request.
    pub(super) fn serve(&mut self, now: Instant, answer: impl Fn(&[u8]) -> Vec<u8>) {
        self.0.retain_mut(|client| {
            let goes_on = client.serve(now, &answer);
            goes_on.is_ok_and(|goes_on| goes_on) && now < client.until
        });
    }
}

impl Client {
    /// Whether there is more to do once it is ready again. An error ends it, without a report.
    fn serve(&mut self, now: Instant, answer: impl Fn(&[u8]) -> Vec<u8>) -> io::Result<bool> {
        loop {
            let mut part = [0; 1024];
            let moved = match &mut self.state {
                ClientState::Requesting(_) | ClientState::Answered => self.stream.read(&mut part),
                ClientState::Answering { answer, sent, .. } => self.stream.write(&answer[*sent..]),
            };
            let length = match moved {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                moved => moved?,
            };
            match &mut self.state {
                ClientState::Requesting(_) | ClientState::Answered if length == 0 => return Ok(false),
                ClientState::Requesting(head) => {
                    head.extend_from_slice(&part[..length]);
                    if head.windows(4).any(|end| end == b"\r\n\r\n") {
                        self.state =
                            ClientState::Answering { answer: answer(head), sent: 0, last: now + LONGEST_ANSWER };
                        self.until = now + PATIENCE;
                    } else if head.len() > LONGEST_HEAD {
                        return Ok(false);
                    }
                }
                ClientState::Answering { answer, sent, last } => {
                    *sent += length;
                    self.until = (now + PATIENCE).min(*last);
                    if *sent == answer.len() {
                        self.stream.shutdown(Shutdown::Write)?;
                        (self.state, self.until) = (ClientState::Answered, now + PATIENCE);
                    }
                }
                // It may send on for ever: the others have their turn, and its time is looked at.
                ClientState::Answered => return Ok(true),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A client, and what it has at the other end.
    fn connected(clients: &mut Clients, now: Instant) -> TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let far = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        far.set_read_timeout(Some(60 * SECOND)).expect("a timeout can be set");
        let (near, _) = listener.accept().expect("a connection");
        near.set_nonblocking(true).expect("a socket takes it");
        clients.add(near, now);
        far
    }

    /// Serves until there are so many.
    fn serve_until(clients: &mut Clients, left: usize, now: Instant) {
        let deadline = Instant::now() + 60 * SECOND;
        while clients.0.len() > left {
            assert!(Instant::now() < deadline, "{} are left", clients.0.len());
            clients.serve(now, |head| [b"to ", head].concat());
        }
    }

    #[test]
    fn silent_clients_keep_nobody_waiting_and_are_closed_when_their_time_is_over() {
        let (start, mut clients) = (Instant::now(), Clients::default());
        let mut silent: Vec<TcpStream> = (0..3).map(|_| connected(&mut clients, start)).collect();
        let mut asking = connected(&mut clients, start + SECOND);
        asking.write_all(b"GET / HTTP/1.1\r\n\r\nmore").expect("there is room");
        let answers = std::thread::spawn(move || {
            let mut read = String::new();
            asking.read_to_string(&mut read).map(|_| read)
        });
        serve_until(&mut clients, 3, start + SECOND);
        assert!(answers.join().expect("no panic").expect("no reset").starts_with("to GET / HTTP/1.1"));
        clients.serve(start + PATIENCE - SECOND / 10, |_| Vec::new());
        assert_eq!((clients.0.len(), clients.until()), (3, Some(start + PATIENCE)));
        serve_until(&mut clients, 0, start + PATIENCE);
        assert!(silent.iter_mut().all(|stream| stream.read(&mut [0]).expect("the end") == 0));
    }

    #[test]
    fn one_that_does_not_read_is_waited_for_as_long_as_it_reads_now_and_then() {
        let (start, mut clients) = (Instant::now(), Clients::default());
        let mut slow = connected(&mut clients, start);
        slow.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("there is room");
        let deadline = Instant::now() + 60 * SECOND;
        while matches!(clients.0[0].state, ClientState::Requesting(_)) {
            assert!(Instant::now() < deadline, "the request does not arrive");
            clients.serve(start, |_| vec![7; 64 * 1024 * 1024]);
        }
        let mut now = start;
        for _ in 0..4 {
            let before = clients.0[0].until;
            now += SECOND + SECOND / 2;
            while clients.0[0].until == before {
                assert!(Instant::now() < deadline, "nothing fits any more");
                slow.read_exact(&mut vec![0; 1 << 20]).expect("it goes on");
                clients.serve(now, |_| Vec::new());
            }
        }
        // What the kernel still has room for is taken before its time is over.
        while !clients.is_empty() {
            assert!(Instant::now() < deadline, "it is waited for without end");
            now += PATIENCE;
            clients.serve(now, |_| Vec::new());
        }
    }

    #[test]
    fn a_client_that_reads_its_answer_for_ever_is_closed() {
        let (start, mut clients) = (Instant::now(), Clients::default());
        let mut slow = connected(&mut clients, start);
        slow.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("there is room");
        slow.set_nonblocking(true).expect("a socket takes it");
        let deadline = Instant::now() + 60 * SECOND;
        let sent = |clients: &Clients| match clients.0.first().map(|client| &client.state) {
            Some(ClientState::Answering { sent, .. }) => *sent,
            _ => 0,
        };
        for second in 0..=LONGEST_ANSWER.as_secs() {
            let (now, before) = (start + second as u32 * SECOND, sent(&clients));
            while !clients.is_empty() && sent(&clients) == before {
                assert!(Instant::now() < deadline, "nothing fits any more");
                let _ = slow.read(&mut [0; 1 << 16]);
                clients.serve(now, |_| vec![7; 256 * 1024 * 1024]);
            }
            assert_eq!(clients.is_empty(), second == LONGEST_ANSWER.as_secs(), "after {second} s");
        }
    }

    #[test]
    fn one_that_sends_on_after_its_answer_has_a_turn_like_the_others_and_is_closed_in_time() {
        let (start, mut clients) = (Instant::now(), Clients::default());
        let mut sends = connected(&mut clients, start);
        sends.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("there is room");
        let deadline = Instant::now() + 60 * SECOND;
        while !matches!(clients.0[0].state, ClientState::Answered) {
            assert!(Instant::now() < deadline, "the request does not arrive");
            clients.serve(start, |_| b"answer".to_vec());
        }
        sends.write_all(&[b'x'; 32 * 1024]).expect("there is room");
        let arrived = |clients: &Clients| clients.0[0].stream.peek(&mut [0; 4096]).unwrap_or(0);
        while arrived(&clients) < 4096 {
            assert!(Instant::now() < deadline, "what it sends does not arrive");
        }
        clients.serve(start, |_| Vec::new());
        assert!(arrived(&clients) > 0, "all of it is read in one turn");
        serve_until(&mut clients, 0, start + PATIENCE);
    }

    #[test]
    fn beyond_the_most_one_that_has_its_answer_makes_room_and_otherwise_nobody_does() {
        let (now, mut clients) = (Instant::now(), Clients::default());
        let mut all: Vec<TcpStream> = (0..MOST).map(|_| connected(&mut clients, now)).collect();
        assert!(!clients.have_room(), "none has its answer");
        all[3].write_all(b"GET / HTTP/1.1\r\n\r\n").expect("there is room");
        let deadline = Instant::now() + 60 * SECOND;
        while !clients.have_room() {
            assert!(Instant::now() < deadline, "the request does not arrive");
            clients.serve(now, |_| b"answer".to_vec());
        }
        all.push(connected(&mut clients, now));
        assert_eq!((clients.0.len(), clients.have_room()), (MOST, false));
        let mut read = String::new();
        all.remove(3).read_to_string(&mut read).expect("no reset");
        assert_eq!(read, "answer");
        for mut stream in all {
            stream.write_all(&vec![b'x'; LONGEST_HEAD + 1]).expect("there is room");
        }
        serve_until(&mut clients, 0, now);
    }
}
