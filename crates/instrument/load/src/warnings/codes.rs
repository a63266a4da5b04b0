//! The codes of warnings that more than one function names.

pub(super) const SATURATED: &str = "generator_saturated";
pub(super) const LATE: &str = "generator_late";
pub(super) const LAG_ALLOWED: &str = "lag_allowed";
pub(super) const STAMPED_LATE: &str = "answers_stamped_late";
pub(super) const BUSY: &str = "connections_busy";
pub(super) const NOT_OFFERED: &str = "rate_not_offered";
pub(super) const UNAVAILABLE: &str = "connections_unavailable";
pub(super) const CLOSED: &str = "connections_closed";
pub(super) const NOTHING_COMPLETED: &str = "nothing_completed";
pub(super) const REDIRECTS: &str = "redirects";
pub(super) const FEW_SAMPLES: &str = "few_samples";
pub(super) const INTERRUPTED: &str = "interrupted";

/// Warnings that follow from the figures of a record alone.
pub(super) const FROM_FIGURES: [&str; 10] = [
    LATE,
    LAG_ALLOWED,
    STAMPED_LATE,
    BUSY,
    UNAVAILABLE,
    CLOSED,
    NOTHING_COMPLETED,
    REDIRECTS,
    FEW_SAMPLES,
    INTERRUPTED,
];
