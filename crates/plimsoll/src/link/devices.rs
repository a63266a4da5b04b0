//! The devices that a link by the kernel makes, and their removal however the link ends.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command as Process, Stdio};

use plimsoll_link::kernel::{Command, Step};

use crate::outcome::note;

/// Removes the devices that succeeded steps made, the last first.
#[derive(Default)]
pub(super) struct Devices {
    undo: Vec<Command>,
    guard: Option<Guard>,
}

impl Devices {
    /// Carries out a step, and notes how to remove what it made.
    pub(super) fn carry_out(&mut self, step: Step) -> Result<(), String> {
        if step.undo.is_some() && self.guard.is_none() {
            self.guard = Some(Guard::start().map_err(|error| format!("cannot start `sh`: {error}"))?);
        }
        carry_out(&step.command)?;
        if let (Some(undo), Some(guard)) = (&step.undo, &mut self.guard) {
            guard.note(undo);
        }
        self.undo.extend(step.undo);
        Ok(())
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for command in self.undo.iter().rev() {
            // A device goes with its peer, and with the namespace of the host that it was moved to.
            if let Err(why) = carry_out(command)
                && !why.contains("Cannot find device")
            {
                note(&format!("a device of the link is not removed: {why}"));
            }
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }
}

/// A process that removes the devices where this one is killed and cannot.
struct Guard {
    shell: Child,
    lines: ChildStdin,
}

/// Reads the devices that are made, until an empty line: then there is nothing to do. Where the
/// lines end before, the process that wrote them is gone.
const GUARD: &str = r#"trap '' INT TERM HUP
while read -r device; do
  [ -n "$device" ] || exit 0
  set -- "$device" "$@"
done
for device; do ip link delete dev "$device"; done"#;

impl Guard {
    fn start() -> io::Result<Guard> {
        // A group of its own: a signal to the group of this process must not end it.
        let mut shell = Process::new("sh")
            .args(["-c", GUARD])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let lines = shell.stdin.take().ok_or_else(|| io::Error::other("it has no standard input"))?;
        Ok(Guard { shell, lines })
    }

    /// Notes the device that a command removes, which is its last word.
    fn note(&mut self, undo: &Command) {
        // A guard that is gone is no reason to end a link.
        let _ = undo.last().map(|device| writeln!(self.lines, "{device}"));
    }

    fn dismiss(mut self) {
        let _ = writeln!(self.lines);
        drop(self.lines);
        let _ = self.shell.wait();
    }
}

fn carry_out(command: &Command) -> Result<(), String> {
    output_of(command).map(drop)
}

/// Runs a command, and returns what it printed.
pub(super) fn output_of(command: &[String]) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("an empty command")?;
    // A group of its own: an interrupt from the terminal must not end a command that makes or
    // removes a device.
    let output = Process::new(program)
        .args(arguments)
        .process_group(0)
        .output()
        .map_err(|error| format!("`{program}` does not run ({error}); install iproute2"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let mend = if said.contains("File exists") {
        "; remove the device of this name (ip link delete) unless another network here has it; each network of \
         --backend kernel needs a namespace of its own"
    } else {
        ""
    };
    Err(format!("`{}` said: {said}{mend}", command.join(" ")))
}
