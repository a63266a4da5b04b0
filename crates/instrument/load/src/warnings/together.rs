//! The verdict on a record that was merged of several, each of which was judged alone.

use plimsoll_measure::summary::Summary;

use super::{
    closing, crowding, few_samples, interruption, offered_for, redirects, saturation, shortfall, silence,
    unavailability, usable_cpus,
};
use crate::config::{Config, Pace, StopCondition};
use crate::warnings::codes::{FEW_SAMPLES, FROM_FIGURES, LATE, NOT_OFFERED, SATURATED, UNAVAILABLE};
use crate::warnings::lateness::{allowed_lag, doubted_figures, late_stamps, lateness};

/// Judges processes that carried one load, each of which was judged alone. They may have used every
/// CPU together. What follows from figures is judged by those of them all: one process has too few
/// requests to tell an accident from lateness, and one whose connection was given up early had no
/// time in which it could miss it. The last request of all was begun at `last_begun_unix_s`, where
/// any was.
pub fn judge_together(summary: &mut Summary, config: &Config, last_begun_unix_s: Option<f64>) {
    summary.warnings.retain(|warning| !FROM_FIGURES.contains(&warning.code.as_str()));
    let is_told = summary.warnings.iter().any(|warning| warning.code == SATURATED);
    let all_cores = saturation(0.0, summary.generator.cpu_cores, usable_cpus(config)).filter(|_| !is_told);
    let mut short = None;
    if let Pace::Open { rate, .. } = config.pace {
        let seconds = if let StopCondition::Time(length) = config.stop_condition {
            // Nothing was due in a process without a window. The windows of the others are as long
            // as was asked for, or as the run until it was ended.
            let seconds = summary.elapsed_s.min(length.as_secs_f64());
            summary.intended_rate = Some(rate.mean_of_first(seconds / length.as_secs_f64()));
            seconds
        } else {
            let last_begun_s = last_begun_unix_s.map_or(f64::MAX, |at| at - summary.window.opened_unix_s);
            offered_for(summary, last_begun_s)
        };
        summary.warnings.retain(|warning| warning.code != NOT_OFFERED);
        short = shortfall(summary, seconds);
    }
    let late = lateness(summary);
    summary.doubted = doubted_figures(summary);
    summary.valid = !is_told && all_cores.is_none() && !late.as_ref().is_some_and(|(_, invalid)| *invalid);
    let anew = [
        all_cores,
        late.map(|(warning, _)| warning),
        allowed_lag(summary),
        late_stamps(summary),
        crowding(summary),
        short,
        unavailability(summary),
        closing(summary),
        silence(summary),
        redirects(summary),
        few_samples(summary),
        interruption(summary),
    ];
    summary.warnings.extend(anew.into_iter().flatten());
}

/// Judges the merged record of generators, each of which was judged alone: the whole may have
/// enough samples where no part has, and the availability of the whole replaces that of its parts.
/// Lateness is that of the published figures, so of all generators together: where one was late by
/// half of a figure of its own, that of the whole may be the server's. One that could not ask for
/// more makes the whole invalid.
pub fn judge_merged(summary: &mut Summary) {
    let has = |code: &str| summary.warnings.iter().any(|known| known.code == code);
    let (saturated, was_late) = (has(SATURATED), has(LATE));
    let late = lateness(summary);
    let invalid = late.as_ref().is_some_and(|(_, invalid)| *invalid);
    summary.valid = (summary.valid || (was_late && !saturated)) && !invalid;
    if let Some((warning, _)) = late.filter(|_| !was_late) {
        summary.warnings.push(warning);
    }
    summary.doubted = doubted_figures(summary);
    let lost = unavailability(summary);
    summary.warnings.retain(|warning| warning.code != FEW_SAMPLES && (lost.is_none() || warning.code != UNAVAILABLE));
    let anew = [lost, few_samples(summary)];
    summary.warnings.extend(anew.into_iter().flatten());
}
