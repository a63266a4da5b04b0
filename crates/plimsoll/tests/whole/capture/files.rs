//! Files that other programs wrote, or that need a remedy.

use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll_capture::file::Writer;

use super::read;
use crate::support::network::{PLIMSOLL, Scratch, run};

/// A SYN in an Ethernet frame. Its fragment is the first of several.
fn syn(is_fragment: bool) -> Vec<u8> {
    let ethernet = [[2; 6], [4; 6]].concat();
    let flags = if is_fragment { 0x20 } else { 0 };
    let ip = [8, 0, 0x45, 0, 0, 40, 0, 1, flags, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let tcp = [0x0f, 0xa0, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 2, 2, 0, 0, 0, 0, 0];
    [&ethernet[..], &ip, &tcp].concat()
}

/// Writes the packets, and finishes the file if the capture came to its end.
fn write(file: &Scratch, packets: &[&[u8]], is_whole: bool) {
    let mut writer = Writer::create(&file.0, "h1-eth0", 128).expect("it can be made");
    let time = Duration::from_secs(1_800_000_000);
    for packet in packets {
        writer.packet(time, packet, 54).expect("it can be written");
    }
    if is_whole {
        writer.finish(time, packets.len() as u64, 0).expect("it can be written");
    }
}

#[test]
fn a_copy_by_wireshark_is_whole_and_its_drops_are_unknown() {
    if Command::new("editcap").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: `editcap` is not installed (apt-get install tshark)");
        return;
    }
    let (file, copy) = (Scratch::new(".pcapng"), Scratch::new(".pcapng"));
    write(&file, &[&syn(false), &syn(false)], true);
    assert_eq!(read(file.path(), &[])["kernel_drops"], 0);
    for (program, arguments) in
        [("editcap", &[file.path(), copy.path()][..]), ("tshark", &["-r", file.path(), "-w", copy.path()])]
    {
        run(program, arguments);
        let summary = read(copy.path(), &[]);
        assert_eq!((&summary["packets"], &summary["kernel_drops"]), (&2.into(), &serde_json::Value::Null), "{program}");
    }
    write(&file, &[&syn(false)], false);
    let output = Command::new(PLIMSOLL).args(["capture", "-r", file.path()]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "it was broken off");
}

#[test]
fn a_remedy_is_one_that_the_command_takes() {
    let file = Scratch::new(".pcapng");
    write(&file, &[&syn(false)[..50], &syn(true), &syn(false)], true);
    let sentence = run(PLIMSOLL, &["capture", "-r", file.path()]);
    assert!(sentence.contains("1 with TCP headers cut off, 1 of TCP in fragments or malformed)"), "{sentence}");
    assert!(!sentence.contains("--snap"), "a file has no more: {sentence}");
    let summary = read(file.path(), &[]);
    assert_eq!((&summary["unreadable"], &summary["cut_off"]), (&2.into(), &1.into()), "{summary}");
}
