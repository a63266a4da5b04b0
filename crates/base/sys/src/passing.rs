//! Descriptors handed from one table to another (unix(7), SCM_RIGHTS), beside a message that says
//! what they are.
//!
//! A number means nothing in another table: what arrives is a new descriptor of the same open file,
//! owned by the receiver. A message is one whole: it comes with all of its descriptors, unless the
//! receiver's table has no room for them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The most descriptors in one message (SCM_MAX_FD in the kernel's include/net/scm.h).
pub const MOST: usize = 253;

const SPACE: usize = rustix::cmsg_space!(ScmRights(MOST));

/// Two ends that exchange messages. Neither blocks.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends a message of at least one byte with at most [`MOST`] descriptors, which stay open here.
/// `WouldBlock` where the other end has not taken what was sent before.
pub fn send(end: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more descriptors than one message carries"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| net::sendmsg(&end, &[IoSlice::new(message)], &mut ancillary, flags))?;
    Ok(())
}

/// Takes a message: its length, 0 where the other end is closed. Its descriptors are appended.
///
/// Where this table had no room for all of the descriptors the error is EMFILE, as of any other
/// call that makes one; those that came are appended all the same, and the message is gone.
pub fn receive(end: impl AsFd, message: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        net::recvmsg(
            &end,
            &mut [IoSliceMut::new(message)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        )
    })?;
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    // The space is for the most there can be, so only a full table cuts it short.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(rustix::io::Errno::MFILE.into());
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_descriptor_arrives_as_another_of_the_same_file() {
        let (near, far) = pair().expect("a pair of sockets");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        send(&near, b"here", &[writer.as_fd()]).expect("the other end has room");
        drop(writer);
        let (mut message, mut descriptors) = ([0; 16], Vec::new());
        assert_eq!(receive(&far, &mut message, &mut descriptors).expect("a message waits"), 4);
        assert_eq!(&message[..4], b"here");
        rustix::io::write(&descriptors[0], b"through").expect("a pipe has room");
        drop(descriptors);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("every writer is closed");
        assert_eq!(read, "through");
        assert_eq!(
            receive(&far, &mut message, &mut Vec::new()).expect_err("no more").kind(),
            io::ErrorKind::WouldBlock
        );
    }

    #[test]
    fn as_many_as_promised_go_in_one_message_and_one_more_is_refused() {
        let (near, far) = pair().expect("a pair of sockets");
        let many = vec![near.as_fd(); MOST + 1];
        assert!(send(&near, b"x", &many).is_err());
        send(&near, b"x", &many[..MOST]).expect("the other end has room");
        let mut descriptors = Vec::new();
        receive(&far, &mut [0; 1], &mut descriptors).expect("a message waits");
        assert_eq!(descriptors.len(), MOST);
    }
}
