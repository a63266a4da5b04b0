//! `plimsoll merge`: one record of several generators'.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use plimsoll_load::warnings;
use plimsoll_measure::limits::{Kind, Limit};
use plimsoll_measure::merge::{MergeError, Windows, merge};
use plimsoll_measure::summary::Summary;

use crate::Output;
use crate::event::Event;
use crate::outcome::{Usage, usage};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll merge A.json B.json                   one JSON object, with and without --json
  plimsoll merge *.json --limit 'response_time.p99 < 50ms'")]
pub(crate) struct Arguments {
    /// What `load --json` printed; of several lines the last counts.
    #[arg(required = true, value_name = "FILE")]
    records: Vec<PathBuf>,
    /// What must hold of the whole, such as 'response_time.p99 < 250ms' (repeatable); missed: exit
    /// code 3.
    #[arg(long, value_name = "EXPRESSION", value_parser = str::parse::<Limit>)]
    limit: Vec<Limit>,
    // The record is for another program to read, so it is JSON with and without --json.
    #[command(flatten)]
    _output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let records = arguments.records.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut whole = merge(&records, Windows::Together).map_err(|error| match error {
        MergeError::Twice { number, of } => {
            let [one, other] = [of, number].map(|number| arguments.records[number - 1].display());
            anyhow!(Usage(format!("{one} and {other} hold one and the same record; name it once")))
        }
        error => anyhow!(error),
    })?;
    warnings::together::judge_merged(&mut whole);
    if let Some(why) = arguments.limit.iter().find_map(|limit| limit.missing_in(kind(&whole))) {
        return usage(format!("--limit: {why}"));
    }
    whole.limits = arguments.limit.iter().map(|limit| limit.check(&whole)).collect();
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(&Event::summary(&whole))?).context("the record cannot be printed")?;
    Ok(crate::load::exit_code(&whole, None))
}

/// Which figures the record has.
fn kind(whole: &Summary) -> Kind {
    let open = whole.intended_rate.is_some();
    Kind {
        open,
        scheduled: open || whole.schedule_lag_us.count > 0,
        receive_lag: !open || whole.receive_lag_us.count > 0,
        // Without any answer it is unknown.
        statuses: whole.transmission_time_us.is_some() || !whole.statuses.is_empty() || whole.requests.completed == 0,
    }
}

fn read(path: &Path) -> anyhow::Result<Summary> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        anyhow!(Usage(format!("cannot read {shown}: {error}; name a file that `load --json` wrote")))
    })?;
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    serde_json::from_str(last).map_err(|error| {
        anyhow!(Usage(format!("{shown} holds no record of a load ({error}); name a file that `load --json` wrote")))
    })
}
