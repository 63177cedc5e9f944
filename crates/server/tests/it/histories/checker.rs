//! Linearizability of the history of one key: the search of Wing and Gong with the memoization of Lowe.
//!
//! A history is linearizable if each operation can take effect at one instant between its call and its response, so that
//! the sequence conforms to the model. An operation without a response may take effect at any time after its call, or
//! never. `stateright` and `todc-utils` check such histories, too. The first has no memoization and no background work,
//! and the second requires a response to every call.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// Upper bound of the visited configurations. A history that needs more is reported as undecided.
const MAX_CONFIGURATIONS: usize = 500_000;

/// The sequential specification of a key: its state, and what each call does to it.
pub(super) trait Model: Clone + Debug + Default + Eq + Hash {
    type Call: Clone + Debug;
    type Response: Clone + Debug;

    /// The states after a call with this response; empty if the state does not allow the response. Without a response:
    /// every state to which the call can lead.
    fn after(&self, call: &Self::Call, response: Option<&Self::Response>) -> Vec<Self>;

    /// The states to which background work of the server can lead.
    fn after_background(&self) -> Vec<Self> {
        Vec::new()
    }

    fn is_read(call: &Self::Call) -> bool;
}

/// A recorded call. Times are microseconds since the history began.
#[derive(Clone, Debug)]
pub(super) struct Operation<M: Model> {
    pub(super) client: usize,
    pub(super) call: M::Call,
    pub(super) called_at: u64,
    /// The time and content of the response; `None` if it is unknown whether the call had an effect.
    pub(super) response: Option<(u64, M::Response)>,
}

impl<M: Model> Operation<M> {
    fn responded_at(&self) -> Option<u64> {
        self.response.as_ref().map(|(at, _)| *at)
    }

    /// Whether the operation is a read with a response. A history without it is still one of the same server.
    fn is_known_read(&self) -> bool {
        self.response.is_some() && M::is_read(&self.call)
    }

    fn line(&self) -> String {
        let milliseconds = |at: u64| format!("{}.{:03}", at / 1000, at % 1000);
        let (until, response) = match &self.response {
            Some((at, response)) => (milliseconds(*at), format!("{response:?}")),
            None => ("?".to_owned(), "unknown".to_owned()),
        };
        let (from, client, call) = (milliseconds(self.called_at), self.client, &self.call);
        format!("  {from:>10} .. {until:>10} ms  client {client}  {call:?} -> {response}")
    }
}

/// Checks the history of a key. The error shows a small part of it that is not linearizable by itself.
pub(super) fn check<M: Model>(operations: &[Operation<M>]) -> Result<(), String> {
    let has_no_effect = |operation: &&Operation<M>| M::is_read(&operation.call) && operation.response.is_none();
    let operations: Vec<_> = operations.iter().filter(|read| !has_no_effect(read)).cloned().collect();
    if search(&operations).is_ok() {
        return Ok(());
    }
    let smallest = shrink(&operations);
    let failure = search(&smallest).err().unwrap_or_default();
    let lines: Vec<String> = smallest.iter().map(Operation::line).collect();
    Err(format!("{}\n  {failure}", lines.join("\n")))
}

/// The shortest prefix that is not linearizable, without the reads that do not matter. Both are histories of the same
/// server, so they must be linearizable, too.
fn shrink<M: Model>(operations: &[Operation<M>]) -> Vec<Operation<M>> {
    let mut ends: Vec<u64> = operations.iter().filter_map(Operation::responded_at).collect();
    ends.sort_unstable();
    let first = ends.partition_point(|end| search(&prefix(operations, *end)).is_ok());
    let mut smallest = ends.get(first).map_or_else(Vec::new, |end| prefix(operations, *end));
    smallest.sort_by_key(|operation| operation.called_at);
    for at in (0..smallest.len()).rev() {
        let mut without = smallest.clone();
        if without.remove(at).is_known_read() && search(&without).is_err() {
            smallest = without;
        }
    }
    smallest
}

/// The history as it was known at a time.
fn prefix<M: Model>(operations: &[Operation<M>], end: u64) -> Vec<Operation<M>> {
    let called = operations
        .iter()
        .filter(|operation| operation.called_at <= end)
        .cloned();
    let cut = called.map(|operation| Operation {
        response: operation.response.filter(|(at, _)| *at <= end),
        ..operation
    });
    cut.filter(|operation| operation.response.is_some() || !M::is_read(&operation.call))
        .collect()
}

/// Searches for a sequence that the model allows. A configuration is the set of the operations that took effect, and the
/// state after them. The error names the states of the longest sequences.
fn search<M: Model>(operations: &[Operation<M>]) -> Result<(), String> {
    assert!(operations.len() <= 128, "{} operations of one key", operations.len());
    let is_in = |set: u128, at: usize| set & (1 << at) != 0;
    let responded = (0..operations.len()).filter(|at| operations[*at].response.is_some());
    let responded = responded.fold(0_u128, |set, at| set | (1 << at));
    let mut stack = vec![(0_u128, M::default())];
    let mut visited: HashSet<(u128, M)> = stack.iter().cloned().collect();
    let (mut longest, mut states) = (0, HashSet::new());
    while let Some((done, state)) = stack.pop() {
        let count = (done & responded).count_ones();
        if done & responded == responded {
            return Ok(());
        }
        if count > longest {
            (longest, states) = (count, HashSet::new());
        }
        if count == longest {
            states.insert(state.clone());
        }
        let open = (0..operations.len()).filter(|at| !is_in(done, *at));
        // An operation cannot take effect after the response to another one that has not taken effect.
        let first_response = open.clone().filter_map(|at| operations[at].responded_at()).min();
        let next = open.filter(|at| first_response.is_none_or(|first| operations[*at].called_at <= first));
        let after = |at: usize| {
            let Operation { call, response, .. } = &operations[at];
            state.after(call, response.as_ref().map(|(_, response)| response))
        };
        // A read that fits can take effect now: later it would leave the same state.
        let read = next
            .clone()
            .find(|at| operations[*at].is_known_read() && after(*at) == [state.clone()]);
        if let Some(at) = read {
            let configuration = (done | (1 << at), state);
            if visited.insert(configuration.clone()) {
                stack.push(configuration);
            }
            continue;
        }
        let after_calls = next.flat_map(|at| after(at).into_iter().map(move |state| (done | (1 << at), state)));
        let after_background = state.after_background().into_iter().map(|state| (done, state));
        for configuration in after_calls.chain(after_background) {
            if visited.insert(configuration.clone()) {
                stack.push(configuration);
            }
        }
        if visited.len() > MAX_CONFIGURATIONS {
            return Err(format!("undecided after {MAX_CONFIGURATIONS} configurations"));
        }
    }
    Err(format!(
        "at most {longest} of these take effect in a permitted order, with the state {states:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register. Background work may reset a negative value to 0.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    struct Register(i64);

    #[derive(Clone, Debug)]
    enum Access {
        Read,
        Write(i64),
    }

    impl Model for Register {
        type Call = Access;
        type Response = i64;

        fn after(&self, call: &Access, response: Option<&i64>) -> Vec<Self> {
            let after = match call {
                Access::Read => self.clone(),
                Access::Write(value) => Self(*value),
            };
            let is_allowed = response.is_none_or(|response| *response == after.0);
            is_allowed.then_some(after).into_iter().collect()
        }

        fn after_background(&self) -> Vec<Self> {
            (self.0 < 0).then_some(Self(0)).into_iter().collect()
        }

        fn is_read(call: &Access) -> bool {
            matches!(call, Access::Read)
        }
    }

    fn write(value: i64, called_at: u64, responded_at: Option<u64>) -> Operation<Register> {
        Operation {
            client: 0,
            call: Access::Write(value),
            called_at,
            response: responded_at.map(|at| (at, value)),
        }
    }

    fn read(value: i64, called_at: u64, responded_at: u64) -> Operation<Register> {
        Operation {
            call: Access::Read,
            ..write(value, called_at, Some(responded_at))
        }
    }

    #[test]
    fn overlapping_operations_take_effect_in_any_order() {
        for order in [[1, 2], [2, 1]] {
            let reads = [read(order[0], 10, 11), read(order[1], 40, 41)];
            let writes = [write(1, 0, Some(30)), write(2, 5, Some(31))];
            check(&[writes.to_vec(), reads.to_vec()].concat()).unwrap();
        }
        // One after the other, they have one order.
        let stale = [write(1, 0, Some(1)), write(2, 2, Some(3)), read(1, 4, 5)];
        check(&stale).unwrap_err();
        // Two reads in sequence cannot see two writes in both orders.
        let split = [
            write(1, 0, Some(30)),
            write(2, 0, Some(30)),
            read(1, 1, 2),
            read(2, 3, 4),
            read(1, 5, 6),
        ];
        check(&split).unwrap_err();
    }

    #[test]
    fn operation_without_response_may_happen_late_or_never() {
        for reads in [[0, 0], [0, 7], [7, 7]] {
            let [first, second] = reads;
            check(&[write(7, 0, None), read(first, 10, 11), read(second, 90, 91)]).unwrap();
        }
        check(&[write(7, 0, None), read(7, 10, 11), read(0, 90, 91)]).unwrap_err();
        // Not before its call.
        check(&[read(7, 0, 1), write(7, 2, None)]).unwrap_err();
    }

    #[test]
    fn background_work_happens_at_any_time() {
        check(&[write(-1, 0, Some(1)), read(-1, 2, 3), read(0, 4, 5)]).unwrap();
        check(&[write(-1, 0, Some(1)), read(0, 2, 3), read(-1, 4, 5)]).unwrap_err();
        check(&[write(1, 0, Some(1)), read(0, 2, 3)]).unwrap_err();
    }

    #[test]
    fn report_shows_the_operations_that_matter() {
        let harmless = (0..20).map(|at| read(1, 100 + at, 200));
        let later = (0..20).map(|value| write(value, 1_000_000, None));
        let stale = [
            write(1, 0, Some(1)),
            write(2, 500_123, Some(600_000)),
            read(1, 600_001, 600_002),
        ];
        let history: Vec<_> = stale.into_iter().chain(harmless).chain(later).collect();
        let report = check(&history).unwrap_err();
        assert_eq!(report.lines().count(), 4, "{report}");
        assert!(
            report.contains("500.123 ..    600.000 ms  client 0  Write(2) -> 2"),
            "{report}"
        );
    }
}
