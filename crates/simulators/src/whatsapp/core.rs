//! The state of the simulator, which all its routes share.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use super::burst_limiter::BurstLimiter;
use super::fault::WhatsappFault;
use super::files::Files;
use super::job::Job;
use super::media::Uploads;
use super::numbers::Numbers;
use super::options::WhatsappOptions;
use super::registry::Registry;
use crate::callback_sender::Queue;
use crate::fault::Script;
use crate::ledger::Ledger;
use crate::locked;

#[derive(Default)]
pub(super) struct Core {
    pub(super) options: Mutex<WhatsappOptions>,
    pub(super) state: Mutex<State>,
    pub(super) faults: Script<WhatsappFault>,
    pub(super) ledger: Ledger,
    pub(super) queue: Queue<Job>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) templates: Registry,
    pub(super) uploads: Uploads,
    pub(super) files: Files,
    pub(super) accounts: Numbers,
    pub(super) numbers: BurstLimiter,
    pub(super) pairs: BurstLimiter,
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    pub(super) per_recipient: HashMap<String, u32>,
    /// The numbers and senders of inbound messages: their service windows are open.
    pub(super) open_windows: HashSet<(String, String)>,
}

impl Core {
    pub(super) fn options(&self) -> WhatsappOptions {
        locked(&self.options).clone()
    }
}
