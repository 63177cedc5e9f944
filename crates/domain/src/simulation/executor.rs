//! A deterministic executor. Every call of a port suspends its task before and after it acts. The executor resumes one
//! suspension at a time, which the seed chooses among those that are due, so that tasks interleave at every await. The
//! clock advances only if no suspension is due.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::rng::TestRng;
use crate::shared::{Clock, Ids, Shutdown, Timer};

pub(super) const START: OffsetDateTime = datetime!(2026-03-10 12:00 UTC);

/// When a suspension is due that only a signal ends.
const NEVER: OffsetDateTime = datetime!(9999-01-01 0:00 UTC);

/// How many of the last resumptions a trace holds.
const TRACE_LENGTH: usize = 80;

pub(super) type TaskId = usize;

/// The server of the tasks of other systems, such as WhatsApp. They are neither killed nor stalled.
pub(super) const OTHER_SYSTEMS: usize = 0;

#[derive(Clone, Copy)]
pub(super) struct TaskInfo {
    pub(super) id: TaskId,
    pub(super) name: &'static str,
    pub(super) server: usize,
}

/// What a suspended task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The call or the sleep of a task that works.
    Busy,
    /// A worker without work. It does not keep the simulation going.
    Idle,
}

/// A task that waits at an await.
struct Suspension {
    task: TaskId,
    label: &'static str,
    due: OffsetDateTime,
    wait: Wait,
    waker: Waker,
    resumed: bool,
}

/// A task that another task or a step has spawned, before the executor starts it.
struct Spawned {
    name: &'static str,
    server: usize,
    future: BoxFuture<'static, ()>,
}

enum TraceLine {
    Step(String),
    /// A task that was resumed, and where.
    Resumed(&'static str, TaskId, &'static str),
}

struct Schedule {
    now: OffsetDateTime,
    rng: TestRng,
    running: TaskId,
    suspensions: BTreeMap<u64, Suspension>,
    last_suspension: u64,
    last_id: u128,
    spawned: Vec<Spawned>,
    stopping: BTreeSet<TaskId>,
    /// The end of each task's last stall.
    stalled_until: BTreeMap<TaskId, OffsetDateTime>,
    trace: VecDeque<(OffsetDateTime, TraceLine)>,
}

/// The part of the executor that the ports share: clock, random numbers, ids, and the suspensions of tasks.
#[derive(Clone)]
pub(super) struct Scheduler(Arc<Mutex<Schedule>>);

impl Scheduler {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Schedule {
            now: START,
            rng: TestRng(seed),
            running: 0,
            suspensions: BTreeMap::new(),
            last_suspension: 0,
            last_id: 0,
            spawned: vec![],
            stopping: BTreeSet::new(),
            stalled_until: BTreeMap::new(),
            trace: VecDeque::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.0.lock().unwrap()
    }

    pub(super) fn running(&self) -> TaskId {
        self.lock().running
    }

    pub(super) fn below(&self, bound: usize) -> usize {
        self.lock().rng.below(bound)
    }

    pub(super) fn percent(&self, percent: usize) -> bool {
        self.lock().rng.percent(percent)
    }

    pub(super) fn pick<T: Clone>(&self, items: &[T]) -> Option<T> {
        self.lock().rng.pick(items)
    }

    /// Adds a step to the trace.
    pub(super) fn note(&self, step: &str) {
        self.lock().add_to_trace(TraceLine::Step(step.to_owned()));
    }

    pub(super) fn trace(&self) -> Vec<String> {
        let schedule = self.lock();
        let lines = schedule.trace.iter().map(|(at, line)| {
            let line = match line {
                TraceLine::Step(step) => step.clone(),
                TraceLine::Resumed(name, task, label) => format!("{name} {task} resumes at {label}"),
            };
            format!("{:>12.3} s  {line}", (*at - START).as_seconds_f64())
        });
        lines.collect()
    }

    pub(super) fn spawn(&self, name: &'static str, server: usize, future: impl Future<Output = ()> + Send + 'static) {
        let future = future.boxed();
        self.lock().spawned.push(Spawned { name, server, future });
    }

    fn suspend_until(&self, label: &'static str, due: OffsetDateTime, wait: Wait) -> SuspensionFuture {
        SuspensionFuture {
            scheduler: self.clone(),
            label,
            due,
            wait,
            id: None,
        }
    }

    /// Suspends the task for up to `milliseconds`.
    pub(super) fn latency(&self, label: &'static str, milliseconds: usize) -> impl Future<Output = ()> + Send + Unpin {
        let latency = i64::try_from(self.below(milliseconds + 1)).unwrap();
        self.suspend_until(label, self.now() + Duration::milliseconds(latency), Wait::Busy)
    }

    pub(super) fn sleep_for(&self, duration: Duration, wait: Wait) -> impl Future<Output = ()> + Send + Unpin {
        self.suspend_until("sleep", self.now() + duration, wait)
    }

    /// Suspends the task until [`Scheduler::signal`] is called with this label.
    pub(super) fn wait_for(&self, label: &'static str) -> impl Future<Output = ()> + Send + Unpin {
        self.suspend_until(label, NEVER, Wait::Idle)
    }

    pub(super) fn signal(&self, label: &'static str) {
        let mut schedule = self.lock();
        let now = schedule.now;
        let waiting = schedule.suspensions.values_mut();
        waiting
            .filter(|suspension| suspension.label == label)
            .for_each(|suspension| suspension.due = now);
    }

    /// Whether the running task was stalled within the last `time`, so that it may act late.
    pub(super) fn is_late(&self, time: Duration) -> bool {
        let schedule = self.lock();
        let until = schedule.stalled_until.get(&schedule.running);
        until.is_some_and(|until| *until + time > schedule.now)
    }
}

impl Clock for Scheduler {
    fn now(&self) -> OffsetDateTime {
        self.lock().now
    }
}

impl Ids for Scheduler {
    fn next(&self) -> Uuid {
        let mut schedule = self.lock();
        schedule.last_id += 1;
        let milliseconds = schedule.now.unix_timestamp_nanos() / 1_000_000;
        Uuid::from_u128(u128::try_from(milliseconds).unwrap() << 80 | schedule.last_id)
    }
}

#[async_trait]
impl Timer for Scheduler {
    async fn sleep(&self, duration: Duration) {
        self.sleep_for(duration, Wait::Busy).await;
    }
}

const STOPPED: &str = "stopped";

#[async_trait]
impl Shutdown for Scheduler {
    fn is_stopping(&self) -> bool {
        let schedule = self.lock();
        schedule.stopping.contains(&schedule.running)
    }

    async fn stopped(&self) {
        if !self.is_stopping() {
            self.wait_for(STOPPED).await;
        }
    }
}

/// The future of one suspension.
struct SuspensionFuture {
    scheduler: Scheduler,
    label: &'static str,
    due: OffsetDateTime,
    wait: Wait,
    id: Option<u64>,
}

impl Future for SuspensionFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut schedule = self.scheduler.0.lock().unwrap();
        let Some(id) = self.id else {
            schedule.last_suspension += 1;
            let (id, task) = (schedule.last_suspension, schedule.running);
            let suspension = Suspension {
                task,
                label: self.label,
                due: self.due,
                wait: self.wait,
                waker: context.waker().clone(),
                resumed: false,
            };
            schedule.suspensions.insert(id, suspension);
            drop(schedule);
            self.id = Some(id);
            return Poll::Pending;
        };
        let suspension = schedule.suspensions.get_mut(&id).unwrap();
        if suspension.resumed {
            return Poll::Ready(());
        }
        suspension.waker.clone_from(context.waker());
        Poll::Pending
    }
}

impl Drop for SuspensionFuture {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.scheduler.lock().suspensions.remove(&id);
        }
    }
}

struct Task {
    name: &'static str,
    server: usize,
    future: LocalBoxFuture<'static, ()>,
}

/// Set when the polled task was woken.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Executor {
    scheduler: Scheduler,
    tasks: BTreeMap<TaskId, Task>,
    last_task: TaskId,
    pub(super) resumptions: usize,
}

impl Executor {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Self {
            scheduler,
            tasks: BTreeMap::new(),
            last_task: 0,
            resumptions: 0,
        }
    }

    pub(super) fn tasks(&self) -> Vec<TaskInfo> {
        let tasks = self.tasks.iter().map(|(id, task)| TaskInfo {
            id: *id,
            name: task.name,
            server: task.server,
        });
        tasks.collect()
    }

    /// Starts a task.
    pub(super) fn spawn(&mut self, name: &'static str, server: usize, future: LocalBoxFuture<'static, ()>) {
        self.last_task += 1;
        self.tasks.insert(self.last_task, Task { name, server, future });
        self.poll(self.last_task);
    }

    /// Starts the tasks that other tasks spawned.
    pub(super) fn start_spawned(&mut self) {
        loop {
            let spawned = std::mem::take(&mut self.scheduler.lock().spawned);
            if spawned.is_empty() {
                return;
            }
            for Spawned { name, server, future } in spawned {
                self.spawn(name, server, future);
            }
        }
    }

    fn poll(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        self.scheduler.lock().running = id;
        let woken = Arc::new(WakeFlag::default());
        let waker = Waker::from(woken.clone());
        // A future that wakes itself, as a set of futures does, continues without a suspension.
        loop {
            woken.0.store(false, Ordering::Relaxed);
            if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.tasks.remove(&id);
                return;
            }
            if !woken.0.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Resumes one suspension that is due. False: none is.
    pub(super) fn resume_one(&mut self) -> bool {
        let mut schedule = self.scheduler.lock();
        let due = schedule.suspensions.iter();
        let due = due.filter(|(_, suspension)| suspension.due <= schedule.now);
        let due = due.filter(|(_, suspension)| schedule.resumes_at(suspension) <= schedule.now);
        let due: Vec<u64> = due.map(|(id, _)| *id).collect();
        let Some(id) = schedule.rng.pick(&due) else {
            return false;
        };
        let suspension = schedule.suspensions.get_mut(&id).unwrap();
        suspension.resumed = true;
        let (task, label, waker) = (suspension.task, suspension.label, suspension.waker.clone());
        if let Some(running) = self.tasks.get(&task) {
            schedule.add_to_trace(TraceLine::Resumed(running.name, task, label));
        }
        drop(schedule);
        waker.wake();
        self.resumptions += 1;
        self.poll(task);
        self.start_spawned();
        true
    }

    /// Advances the clock until the next suspension is due, at most to `end`. If every task is idle, their pauses are
    /// skipped: the clock advances to `next_work`, the time at which a store has work for them.
    pub(super) fn advance(&self, end: OffsetDateTime, next_work: impl FnOnce() -> Option<OffsetDateTime>) {
        let [busy, idle] = [Wait::Busy, Wait::Idle].map(|wait| self.scheduler.lock().next_due(wait));
        let next = match busy < NEVER {
            true => busy.min(idle),
            false => idle.max(next_work().unwrap_or(end)),
        };
        let mut schedule = self.scheduler.lock();
        schedule.now = next.min(end).max(schedule.now);
    }

    /// Drops a task where it is suspended.
    pub(super) fn kill(&mut self, id: TaskId) {
        self.tasks.remove(&id);
    }

    /// Does not resume a task for `time`.
    pub(super) fn stall(&self, id: TaskId, time: Duration) {
        let mut schedule = self.scheduler.lock();
        let until = schedule.now + time;
        schedule.stalled_until.insert(id, until);
    }

    pub(super) fn was_stalled(&self, id: TaskId) -> bool {
        self.scheduler.lock().stalled_until.contains_key(&id)
    }

    pub(super) fn end_stalls(&self) {
        let mut schedule = self.scheduler.lock();
        let now = schedule.now;
        schedule
            .stalled_until
            .values_mut()
            .for_each(|until| *until = now.min(*until));
    }

    /// Stops a task as a server does that shuts down.
    pub(super) fn stop(&self, id: TaskId) {
        let mut schedule = self.scheduler.lock();
        schedule.stopping.insert(id);
        let now = schedule.now;
        let suspensions = schedule.suspensions.values_mut();
        suspensions
            .filter(|suspension| suspension.task == id && suspension.label == STOPPED)
            .for_each(|suspension| suspension.due = now);
    }
}

impl Schedule {
    fn add_to_trace(&mut self, line: TraceLine) {
        let now = self.now;
        self.trace.push_back((now, line));
        if self.trace.len() > TRACE_LENGTH {
            self.trace.pop_front();
        }
    }

    fn next_due(&self, wait: Wait) -> OffsetDateTime {
        let suspensions = self.suspensions.values();
        let waiting = suspensions.filter(|suspension| suspension.wait == wait);
        waiting
            .map(|suspension| self.resumes_at(suspension))
            .min()
            .unwrap_or(NEVER)
    }

    /// When a suspension can be resumed. A stalled task continues after its stall.
    fn resumes_at(&self, suspension: &Suspension) -> OffsetDateTime {
        let stalled_until = self.stalled_until.get(&suspension.task);
        stalled_until.map_or(suspension.due, |until| suspension.due.max(*until))
    }
}
