//! Assignment of CPUs to transmit queues.

/// Assigns CPUs to queues like the kernel's driver (`virtnet_set_affinity`,
/// `drivers/net/virtio_net.c`): contiguous groups, of which the first have one CPU more if the
/// division leaves a remainder. With more queues than CPUs each queue has one CPU, starting again
/// from the first.
pub fn spread(online: &[u32], queues: u32) -> Vec<Vec<u32>> {
    let cpus = u32::try_from(online.len()).unwrap_or(u32::MAX);
    if cpus == 0 || queues == 0 {
        return Vec::new();
    }
    let stride = (cpus / queues).max(1);
    let rest = if cpus >= queues { cpus % queues } else { 0 };
    let mut next = online.iter().copied().cycle();
    (0..queues)
        .map(|queue| {
            let size = stride + u32::from(queue < rest);
            let mut group: Vec<u32> = (0..size).filter_map(|_| next.next()).collect();
            group.sort_unstable();
            group
        })
        .collect()
}

/// Whether each online CPU sends by exactly one of these queues and the queues' numbers of CPUs
/// differ by at most one; or whether it is the kernel's own assignment. Offline CPUs are ignored.
pub fn is_even(online: &[u32], maps: &[Vec<u32>]) -> bool {
    let loads: Vec<usize> = maps
        .iter()
        .map(|map| online.iter().filter(|cpu| map.contains(cpu)).count())
        .collect();
    let once = online
        .iter()
        .all(|cpu| maps.iter().filter(|map| map.contains(cpu)).count() == 1);
    let (least, most) = (loads.iter().min(), loads.iter().max());
    let even = least.zip(most).is_some_and(|(least, most)| most - least <= 1);
    (once && even) || is_own(online, maps)
}

fn is_own(online: &[u32], maps: &[Vec<u32>]) -> bool {
    let own = spread(online, u32::try_from(maps.len()).unwrap_or(u32::MAX));
    let same = |map: &Vec<u32>, own: &Vec<u32>| {
        let seen = online.iter().filter(|cpu| map.contains(cpu));
        let mut own = own.clone();
        own.sort_unstable();
        seen.eq(own.iter())
    };
    own.len() == maps.len() && maps.iter().zip(&own).all(|(map, own)| same(map, own))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_groups_have_one_cpu_more() {
        assert_eq!(spread(&[0, 1, 2, 3, 4], 2), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(spread(&[0, 2, 3], 3), [[0], [2], [3]]);
        assert_eq!(spread(&[0, 1], 3), [[0], [1], [0]], "more queues than CPUs");
        assert!(spread(&[], 3).is_empty() && spread(&[0], 0).is_empty());
    }

    #[test]
    fn even_assignments_are_accepted() {
        let online = [0, 1, 2, 3];
        assert!(is_even(&online, &[vec![0, 2], vec![1, 3]]), "interleaved");
        assert!(is_even(&online, &[vec![0, 1, 7], vec![2, 3]]), "7 is not online");
        assert!(!is_even(&online, &[vec![0, 1], vec![2]]), "3 is nowhere");
        assert!(!is_even(&online, &[vec![0, 1, 2], vec![3]]), "uneven");
        assert!(!is_even(&online, &[vec![0, 1], vec![1, 2, 3]]), "1 is twice");
        assert!(!is_even(&online, &[vec![], vec![]]), "no XPS");
        assert!(is_even(&[0, 1], &[vec![0], vec![1], vec![0]]), "the kernel's own");
    }

    proptest! {
        #[test]
        fn kernel_assignment_is_even(cpus in proptest::collection::btree_set(0u32..300, 1..80), queues in 1u32..260) {
            let online: Vec<u32> = cpus.into_iter().collect();
            prop_assert!(is_even(&online, &spread(&online, queues)));
        }
    }
}
