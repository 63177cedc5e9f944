//! Steps that disturb a simulation: contacts and accounts that change, tasks that die or stall, and calls that fail.

use time::Duration;

use super::executor::{OTHER_SYSTEMS, TaskInfo};
use super::steps::Simulation;
use super::stores::FailureRates;

impl Simulation {
    /// A contact opts out or in again, or an account is suspended or not any more.
    pub(super) fn contact_step(&self) -> String {
        let account = self.scheduler.pick(&self.accounts).unwrap();
        let mut tables = self.stores.runs.tables();
        let row = tables.accounts.get_mut(&account).unwrap();
        if self.scheduler.percent(20) {
            row.suspended = !row.suspended;
            let suspended = &mut self.stores.webhooks.tables().suspended_accounts;
            match row.suspended {
                true => suspended.insert(account),
                false => suspended.remove(&account),
            };
            return format!("account {account} suspended: {}", row.suspended);
        }
        let ids: Vec<_> = row.contacts.keys().copied().collect();
        let id = self.scheduler.pick(&ids).unwrap();
        let contact = row.contacts.get_mut(&id).unwrap();
        contact.opted_out = !contact.opted_out;
        format!("contact {id} of account {account} opted out: {}", contact.opted_out)
    }

    /// Kills a task or a server, stalls a worker, perhaps beyond its lease, or stops it.
    pub(super) fn task_step(&mut self) -> String {
        let tasks = self.executor.tasks();
        let tasks: Vec<TaskInfo> = tasks.into_iter().filter(|task| task.server != OTHER_SYSTEMS).collect();
        let TaskInfo { id, name, server } = self.scheduler.pick(&tasks).unwrap();
        match self.scheduler.below(8) {
            0..3 => {
                self.executor.kill(id);
                format!("kill {name} {id} of server {server}")
            }
            3 => {
                let of_server = tasks.iter().filter(|task| task.server == server);
                of_server.for_each(|task| self.executor.kill(task.id));
                format!("kill server {server}")
            }
            4..7 => {
                // A request has a deadline, which is shorter than the lease of its intent.
                let longest = if name == "command" { 45 } else { 120 };
                if name == "command" && self.executor.was_stalled(id) {
                    return format!("{name} {id} continues");
                }
                let time = Duration::seconds(i64::try_from(1 + self.scheduler.below(longest)).unwrap());
                self.executor.stall(id, time);
                format!("stall {name} {id} for {time}")
            }
            _ => {
                self.executor.stop(id);
                format!("stop {name} {id}")
            }
        }
    }

    /// Changes how often calls to the stores and to other systems fail.
    pub(super) fn failure_rate_step(&self) -> String {
        let percent = |percents: &[usize]| self.scheduler.pick(percents).unwrap();
        let rates = FailureRates {
            store: percent(&[0, 0, 0, 2, 10]),
            whatsapp: percent(&[0, 20, 50]),
            payments: percent(&[0, 20, 60]),
            receivers: percent(&[0, 20, 80]),
        };
        *self.stores.failure_rates.lock().unwrap() = rates;
        format!("{rates:?}")
    }

    /// Lets seconds to days pass, in which the workers go on.
    pub(super) fn time_step(&mut self) -> Result<String, String> {
        let time = match self.scheduler.below(6) {
            0..3 => Duration::seconds(30),
            3 => Duration::minutes(10),
            4 => Duration::hours(5),
            _ => Duration::days(20),
        };
        self.let_time_pass(time)?;
        Ok(format!("{time} passed"))
    }
}
