//! Dates of the agent's certificate. The guest's clock may be wrong, and the collector verifies the
//! dates with its own at each connection; so the guest's clock decides as little as possible.

/// Difference between the guest's clock and the collector's that is tolerated, in seconds: a day.
pub const MAX_CLOCK_DIFFERENCE: u64 = 86_400;

/// First and last second of a certificate's validity, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateDates {
    /// First second.
    pub not_before: u64,
    /// Last second.
    pub not_after: u64,
}

/// How far a certificate is through its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateAge {
    /// As usual.
    Fresh,
    /// Less than a sixth of its life is left. It is renewed from two thirds on, so a renewal has
    /// failed.
    NotRenewed,
    /// Its last second has passed.
    Expired,
}

impl CertificateDates {
    /// The age at `now`. Before its first second it is fresh: then the guest's clock is behind.
    pub fn age(self, now: u64) -> CertificateAge {
        let life = self.not_after.saturating_sub(self.not_before);
        if now > self.not_after {
            CertificateAge::Expired
        } else if self.not_after - now < life / 6 {
            CertificateAge::NotRenewed
        } else {
            CertificateAge::Fresh
        }
    }

    /// Whether a stored certificate is served at the start of the agent. If not, the agent waits
    /// for enrolment, which does no harm if the guest's clock was wrong.
    pub fn is_served_at_start(self, now: u64) -> bool {
        now <= self.not_after.saturating_add(MAX_CLOCK_DIFFERENCE)
    }

    /// Whether a certificate that a collector has just issued is accepted at `now`. One that is not
    /// valid yet is: the guest's clock is behind. One that has expired is refused only if the clock
    /// is `synchronised` with a server: then the collector's clock is wrong. Otherwise a guest
    /// whose clock is never set could never be enrolled.
    pub fn is_accepted(self, now: u64, synchronised: bool) -> bool {
        self.is_served_at_start(now) || !synchronised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const NOW: u64 = 1_800_000_000;

    fn dates(not_before: u64, not_after: u64) -> CertificateDates {
        CertificateDates {
            not_before,
            not_after,
        }
    }

    #[test]
    fn a_missed_renewal_shows_before_the_certificate_expires() {
        let day = dates(NOW, NOW + DAY);
        for (hours, age) in [
            (0, CertificateAge::Fresh),
            (16, CertificateAge::Fresh),
            (20, CertificateAge::Fresh),
            (21, CertificateAge::NotRenewed),
            (24, CertificateAge::NotRenewed),
            (25, CertificateAge::Expired),
        ] {
            assert_eq!(day.age(NOW + hours * 3600), age, "{hours} h");
        }
        assert_eq!(day.age(0), CertificateAge::Fresh, "a clock in 1970");
    }

    #[test]
    fn a_clock_that_nothing_sets_refuses_no_certificate() {
        let expired = dates(NOW - 10 * DAY, NOW - 9 * DAY);
        assert!(!expired.is_accepted(NOW, true));
        assert!(expired.is_accepted(NOW, false));
        assert!(!expired.is_served_at_start(NOW));
    }

    #[test]
    fn a_day_of_difference_and_a_clock_that_is_behind_are_tolerated() {
        let ahead = dates(NOW - 2 * DAY, NOW - DAY);
        assert!(ahead.is_accepted(NOW, true) && ahead.is_served_at_start(NOW));
        assert!(!ahead.is_accepted(NOW + 1, true));
        assert!(dates(NOW + 300 * DAY, NOW + 301 * DAY).is_accepted(NOW, true));
        assert!(dates(0, u64::MAX).is_accepted(u64::MAX, true));
    }
}
