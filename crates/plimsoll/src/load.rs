//! `plimsoll load`: asks a server for as much as it is told to, and says truly what came back.

mod arguments;
mod http;
mod live;
mod words;

use std::io::Write;
use std::process::ExitCode;

use plimsoll_load::config::Config;
use plimsoll_load::doubt;
use plimsoll_load::echo::Echo;
use plimsoll_load::protocol::Protocol;
use plimsoll_load::run;
use plimsoll_measure::limits::Limit;
use plimsoll_measure::summary::Summary;
use plimsoll_sys::signal::Signal;
use serde::Serialize;

use crate::Output;
use crate::colour::Paint;
pub(crate) use arguments::Arguments;

/// What `--json` prints as its last line.
#[derive(Serialize)]
pub(crate) struct Event<'a> {
    event: &'static str,
    #[serde(flatten)]
    summary: &'a Summary,
}

impl Event<'_> {
    pub(crate) fn summary(summary: &Summary) -> Event<'_> {
        Event { event: "summary", summary }
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.protocol {
        arguments::Protocol::Echo(echo) => {
            let config = echo.common.config(echo.targets()?)?;
            let messages = echo.messages(config.seed)?;
            carry_out(&config, Echo::new(messages), &echo.common.limit, echo.common.output)
        }
        arguments::Protocol::Http(http) => {
            let plan = http.plan()?;
            let config = http.common.config(plan.targets)?;
            carry_out(&config, plan.protocol, &http.common.limit, http.common.output)
        }
    }
}

fn carry_out<P: Protocol>(config: &Config, protocol: P, limits: &[Limit], output: Output) -> anyhow::Result<ExitCode> {
    let mut live = live::Live::new(output, config);
    let outcome = run::run(config, protocol, &mut live)?;
    live.finish();
    let mut summary = doubt::summarise(config, &outcome);
    anyhow::ensure!(
        summary.requests.balance(),
        "the requests do not add up ({:?}): this is a fault of the generator's own; please report it with the command",
        summary.requests
    );
    summary.limits = limits.iter().map(|limit| limit.check(&summary)).collect();
    let mut stdout = std::io::stdout().lock();
    // A closed standard output is nobody's to tell: the exit code still says how it went.
    let _ = if output.json {
        writeln!(stdout, "{}", serde_json::to_string(&Event::summary(&summary))?)
    } else {
        words::write(&mut stdout, &summary, config, Paint::stdout(output))
    };
    let _ = stdout.flush();
    Ok(exit_code(&summary, outcome.interrupted))
}

/// An interrupted run says so; fewer connections than asked for, or no answer at all, is a failure; doubt comes before a missed limit, as an invalid figure
/// neither meets nor misses one.
pub(crate) fn exit_code(summary: &Summary, interrupted: Option<Signal>) -> ExitCode {
    if let Some(signal) = interrupted {
        // The shell's convention for a program that a signal ended.
        return ExitCode::from(128 + signal.number() as u8);
    }
    if summary.connections.failed > 0 || summary.requests.completed == 0 {
        ExitCode::FAILURE
    } else if !summary.valid {
        ExitCode::from(4)
    } else if summary.limits.iter().any(|limit| !limit.met) {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    }
}
