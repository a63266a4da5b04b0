//! Answers by their exact status code (RFC 9110, section 15).

use std::collections::BTreeMap;

/// How many answers had each status code.
///
/// A run sees few different codes, so a list that is searched from its front costs less than a
/// table of 1000 counts, of which each event loop would need one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses(Vec<(u16, u64)>);

impl Statuses {
    /// Counts one more answer. A protocol without status codes reports 0, which is not counted.
    pub fn count(&mut self, status: u16) {
        if status > 0 {
            self.add_count(status, 1);
        }
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Statuses) {
        for (status, count) in &other.0 {
            self.add_count(*status, *count);
        }
    }

    /// Counts by exact code, such as `404`.
    pub fn by_code(&self) -> BTreeMap<String, u64> {
        self.0.iter().map(|(status, count)| (format!("{status:03}"), *count)).collect()
    }

    /// Counts by class, such as `4xx`. A code of 600 or more counts as a server error, as RFC 9110
    /// (section 15) asks.
    pub fn by_class(&self) -> BTreeMap<String, u64> {
        let mut classes = BTreeMap::new();
        for (status, count) in &self.0 {
            *classes.entry(format!("{}xx", (status / 100).clamp(1, 5))).or_insert(0) += count;
        }
        classes
    }

    /// Answers that ask for another request in place of this one (RFC 9110, section 15.4); 300 and
    /// 304 do not.
    pub fn redirects(&self) -> u64 {
        self.0.iter().filter(|(status, _)| REDIRECTS.contains(status)).map(|(_, count)| count).sum()
    }

    fn add_count(&mut self, status: u16, count: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == status) {
            Some((_, total)) => *total += count,
            None => self.0.push((status, count)),
        }
    }
}

const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(codes: &[u16]) -> Statuses {
        let mut statuses = Statuses::default();
        codes.iter().for_each(|status| statuses.count(*status));
        statuses
    }

    fn map(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn every_code_is_counted_exactly_and_in_its_class() {
        let statuses = of(&[200, 404, 200, 410, 503, 999, 0]);
        assert_eq!(statuses.by_code(), map(&[("200", 2), ("404", 1), ("410", 1), ("503", 1), ("999", 1)]));
        assert_eq!(statuses.by_class(), map(&[("2xx", 2), ("4xx", 2), ("5xx", 2)]));
    }

    #[test]
    fn redirects_are_the_codes_that_name_another_place() {
        assert_eq!(of(&[200, 300, 301, 302, 303, 304, 307, 308, 404]).redirects(), 5);
    }

    proptest! {
        #[test]
        fn classes_and_codes_count_the_same_answers(
            codes in prop::collection::vec(100_u16..1000, 0..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let (left, right) = codes.split_at(cut.index(codes.len() + 1));
            let mut merged = of(right);
            merged.add(&of(left));
            prop_assert_eq!(merged.by_code(), of(&codes).by_code());
            prop_assert_eq!(merged.by_class().values().sum::<u64>(), codes.len() as u64);
        }
    }
}
