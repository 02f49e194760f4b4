//! How many prompt rows each waiting prefill gets in one step.

/// Divides `budget` rows between prefills that have `left[i]` rows to compute. Each gets an equal share, what a short
/// one leaves goes to the others, and the rest of a division to those admitted first: a short prompt never waits
/// behind a long one, and no row of the budget stays unused while somebody could use it.
pub(crate) fn share(budget: usize, left: &[usize]) -> Vec<usize> {
    let mut given = vec![0; left.len()];
    let mut budget = budget;
    loop {
        let hungry: Vec<usize> = (0..left.len()).filter(|&i| given[i] < left[i]).collect();
        if budget == 0 || hungry.is_empty() {
            return given;
        }
        let each = (budget / hungry.len()).max(1);
        for i in hungry {
            let rows = each.min(left[i] - given[i]).min(budget);
            given[i] += rows;
            budget -= rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_prompt_is_done_in_one_step_beside_a_long_one() {
        assert_eq!(share(512, &[200_000, 30]), [482, 30]);
        assert_eq!(share(512, &[200_000, 200_000]), [256, 256]);
        assert_eq!(share(2, &[9, 9, 9]), [1, 1, 0]);
    }

    proptest! {
        #[test]
        fn the_budget_is_used_whole_and_nobody_gets_more_than_asked(
            budget in 0usize..2_000,
            left in proptest::collection::vec(0usize..3_000, 0..20),
        ) {
            let given = share(budget, &left);
            prop_assert!(given.iter().zip(&left).all(|(g, l)| g <= l));
            prop_assert_eq!(given.iter().sum::<usize>(), budget.min(left.iter().sum()));
        }

        #[test]
        fn equals_differ_by_at_most_one_row(budget in 1usize..2_000, count in 1usize..20) {
            let given = share(budget, &vec![10_000; count]);
            prop_assert!(given.iter().max().unwrap() - given.iter().min().unwrap() <= 1);
        }
    }
}
