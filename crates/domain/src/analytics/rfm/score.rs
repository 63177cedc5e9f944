//! Converts ranks to scores, and scores to segments.

use crate::shared::{Amount, string_enum};

string_enum! {
    /// The RFM segment of a customer. Campaigns store the names, so they never change.
    RfmSegment {
        /// Bought recently and buy often.
        Champions = "champions",
        /// Buy often.
        Loyal = "loyal",
        /// Recent, more than one order.
        PotentialLoyalists = "potential_loyalists",
        /// First order, very recent.
        NewCustomers = "new_customers",
        /// First order, recent.
        Promising = "promising",
        /// Medium recency and frequency.
        NeedAttention = "need_attention",
        /// Medium recency, few orders.
        AboutToSleep = "about_to_sleep",
        /// Bought often, long ago.
        AtRisk = "at_risk",
        /// Bought very often, long ago.
        CantLoseThem = "cant_lose_them",
        /// Few orders, long ago.
        Hibernating = "hibernating",
        /// The fewest orders, longest ago.
        Lost = "lost",
    }
}

/// The best score. The worst is 1.
pub const BEST_SCORE: i32 = 5;

/// Returns the segment of a recency and a frequency score.
pub fn segment(recency: i32, frequency: i32) -> RfmSegment {
    use RfmSegment::*;
    match (recency, frequency) {
        (5.., 4..) => Champions,
        (3 | 4, 4..) => Loyal,
        (4.., 2 | 3) => PotentialLoyalists,
        (5.., _) => NewCustomers,
        (4, _) => Promising,
        (3, 3) => NeedAttention,
        (3, _) => AboutToSleep,
        (_, 5..) => CantLoseThem,
        (_, 3 | 4) => AtRisk,
        (2, _) | (_, 2) => Hibernating,
        _ => Lost,
    }
}

/// Returns every pair of recency and frequency scores with its segment.
pub fn grid() -> Vec<(i32, i32, RfmSegment)> {
    let cells = (1..=BEST_SCORE).flat_map(|recency| (1..=BEST_SCORE).map(move |frequency| (recency, frequency)));
    cells.map(|(r, f)| (r, f, segment(r, f))).collect()
}

/// Returns the score of a customer from the number of customers with a lower value and the number of all customers.
/// Equal values get equal scores, and the lowest value always gets the score 1.
pub fn score(below: usize, count: usize) -> i32 {
    let fifths = below.saturating_mul(5) / count.saturating_sub(1).max(1);
    i32::try_from(fifths.saturating_add(1)).map_or(BEST_SCORE, |score| score.min(BEST_SCORE))
}

/// A customer's paid orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purchases {
    /// When the last order was paid.
    pub last_at: time::OffsetDateTime,
    /// The number of paid orders.
    pub orders: i64,
    /// The total value of the paid orders.
    pub spend: Amount,
}

/// The scores of one customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RfmScores {
    pub recency: i32,
    pub frequency: i32,
    pub monetary: i32,
}

impl RfmScores {
    /// The segment of these scores.
    pub fn segment(self) -> RfmSegment {
        segment(self.recency, self.frequency)
    }
}

/// Returns the scores of all customers in their order. This is the reference implementation: a store may use another
/// algorithm with the same result.
pub fn scores(customers: &[Purchases]) -> Vec<RfmScores> {
    let count = customers.len();
    let rank = |below: &dyn Fn(&Purchases) -> bool| {
        score(customers.iter().filter(|candidate| below(candidate)).count(), count)
    };
    let scores = customers.iter().map(|customer| RfmScores {
        recency: rank(&|candidate| candidate.last_at < customer.last_at),
        frequency: rank(&|candidate| candidate.orders < customer.orders),
        monetary: rank(&|candidate| candidate.spend < customer.spend),
    });
    scores.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    fn customer(days: i64, orders: i64, cents: i64) -> Purchases {
        Purchases {
            last_at: datetime!(2026-03-01 12:00 UTC) - Duration::days(days),
            orders,
            spend: Amount::from(cents),
        }
    }

    fn scored(customers: &[Purchases]) -> Vec<(i32, i32, i32, RfmSegment)> {
        let scores = scores(customers).into_iter();
        scores
            .map(|s| (s.recency, s.frequency, s.monetary, s.segment()))
            .collect()
    }

    #[test]
    fn rfm_scores_match_the_sample() {
        use RfmSegment::*;
        let customers = [
            customer(2, 12, 250_000),
            customer(5, 1, 9_900),
            customer(8, 6, 80_000),
            customer(20, 2, 15_000),
            customer(35, 3, 21_000),
            customer(60, 1, 5_000),
            customer(90, 9, 190_000),
            customer(150, 4, 40_000),
            customer(220, 1, 7_000),
            customer(400, 1, 3_000),
        ];
        let expected = [
            (5, 5, 5, Champions),
            (5, 1, 2, NewCustomers),
            (4, 4, 4, Loyal),
            (4, 3, 3, PotentialLoyalists),
            (3, 3, 3, NeedAttention),
            (3, 1, 1, AboutToSleep),
            (2, 5, 5, CantLoseThem),
            (2, 4, 4, AtRisk),
            (1, 1, 2, Lost),
            (1, 1, 1, Lost),
        ];
        assert_eq!(scored(&customers), expected);
    }

    #[test]
    fn rfm_grid_matches_the_contract() {
        let expected = [
            "lost hibernating at_risk at_risk cant_lose_them",
            "hibernating hibernating at_risk at_risk cant_lose_them",
            "about_to_sleep about_to_sleep need_attention loyal loyal",
            "promising potential_loyalists potential_loyalists loyal loyal",
            "new_customers potential_loyalists potential_loyalists champions champions",
        ];
        for (row, expected) in grid().chunks(5).zip(expected) {
            let names: Vec<&str> = row.iter().map(|(.., segment)| segment.as_str()).collect();
            assert_eq!(names.join(" "), expected);
        }
        assert_eq!(grid().len(), 25);
        let named = |segment: &&RfmSegment| grid().iter().any(|(.., cell)| cell == *segment);
        assert_eq!(RfmSegment::ALL.iter().filter(named).count(), 11);
    }

    #[test]
    fn rfm_scores_of_one_two_and_no_customers() {
        let single = customer(1, 1, 1);
        assert_eq!(scored(&[single]), [(1, 1, 1, RfmSegment::Lost)]);
        assert_eq!(scored(&[single; 7]), [(1, 1, 1, RfmSegment::Lost); 7]);
        let two = [customer(9, 1, 1), customer(1, 2, 2)];
        assert_eq!(
            scored(&two),
            [(1, 1, 1, RfmSegment::Lost), (5, 5, 5, RfmSegment::Champions)]
        );
        assert_eq!(scored(&[]), []);
    }

    #[test]
    fn rfm_score_equals_percent_rank() {
        for count in 2..400_u32 {
            for below in 0..count {
                let percent_rank = f64::from(below) / f64::from(count - 1);
                let expected = (1.0 + (5.0 * percent_rank).floor()).min(5.0);
                assert_eq!(
                    f64::from(score(usize::try_from(below).unwrap(), usize::try_from(count).unwrap())),
                    expected,
                    "{below} of {count}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn rfm_scores_do_not_depend_on_order(
            rows in prop::collection::vec((0_i64..9, 1_i64..5, 0_i64..9), 1..40), rotation in 0_usize..40,
        ) {
            let customers: Vec<Purchases> = rows.iter().map(|&(d, o, c)| customer(d, o, c)).collect();
            let rotation = rotation % customers.len();
            let mut rotated = customers.clone();
            rotated.rotate_left(rotation);
            let mut expected = scores(&customers);
            expected.rotate_left(rotation);
            prop_assert_eq!(scores(&rotated), expected);
        }
    }
}
