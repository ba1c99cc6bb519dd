//! When a certificate is renewed.

use virtfleet_wire::ids::VmKey;

use super::stable_hash::stable_hash;

/// Validity of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateLife {
    /// First second.
    pub not_before: u64,
    /// Last second.
    pub not_after: u64,
}

/// Steps of the jitter: [`CertificateLife::renew_at`] is one of so many times for VMs with equal
/// certificates.
const JITTER_STEPS: u64 = 2001;

impl CertificateLife {
    fn seconds(self) -> u64 {
        self.not_after.saturating_sub(self.not_before)
    }

    /// When the certificate of `vm` is renewed: at two thirds of its life, 10 % earlier or later by
    /// VM, so that the certificates of a fleet that enrolled at once are not renewed at once.
    pub fn renew_at(self, vm: &VmKey) -> u64 {
        let step = stable_hash(vm) % JITTER_STEPS;
        // 0.9 to 1.1 of two thirds, in whole numbers.
        let middle = self.seconds() / 3 * 2;
        let jitter = u128::from(middle / 5) * u128::from(step) / u128::from(JITTER_STEPS - 1);
        let offset = (middle / 10 * 9).saturating_add(u64::try_from(jitter).unwrap_or(u64::MAX));
        self.not_before.saturating_add(offset)
    }

    /// Whether at most a sixth of the life is left, and the certificate is expired or soon will be.
    pub fn is_expiring(self, now: u64) -> bool {
        self.not_after.saturating_sub(now) <= self.seconds() / 6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(number: usize) -> VmKey {
        VmKey {
            namespace: "ns".parse().unwrap(),
            name: format!("worker-{number}").parse().unwrap(),
        }
    }

    const DAY: CertificateLife = CertificateLife {
        not_before: 1_000_000,
        not_after: 1_000_000 + 86_400,
    };

    #[test]
    fn renewals_of_one_day_are_spread_evenly_around_two_thirds() {
        let mut slots = [0_usize; 10];
        for number in 0..10_000 {
            let at = DAY.renew_at(&vm(number)) - DAY.not_before;
            assert!((51_840..=63_360).contains(&at), "{at}");
            slots[usize::try_from((at - 51_840) / 1_153).unwrap()] += 1;
        }
        assert!(slots.iter().all(|count| (850..1150).contains(count)), "{slots:?}");
    }

    #[test]
    fn a_sixth_before_the_end_a_certificate_is_expiring() {
        assert!(!DAY.is_expiring(DAY.not_after - 14_401));
        assert!(DAY.is_expiring(DAY.not_after - 14_400) && DAY.is_expiring(DAY.not_after + 5));
    }

    #[test]
    fn extreme_validities_do_not_overflow() {
        for (not_before, not_after) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX), (0, 0)] {
            let life = CertificateLife {
                not_before,
                not_after,
            };
            life.renew_at(&vm(3));
            life.is_expiring(u64::MAX);
        }
    }
}
