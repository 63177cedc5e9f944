//! Messaging: what is common to every message that Recado sends, whichever context sends it.
//!
//! Owns the outbound messages and the port that sends them, their status, price and outcome, and the parts of templates
//! that calls to WhatsApp contain. Imports no other context than `media`: `campaigns`, `conversations`, `templates`,
//! `whatsapp` and `callbacks` use it.

mod component;
mod content;
mod error_class;
mod gateway;
mod outbound;
mod outcome;
mod pricing;
mod status;
mod submission;
mod template;
mod upload;

pub use component::{Button, ButtonType, CarouselCard, Component, ComponentType};
pub use content::*;
pub use error_class::{BlockCause, ErrorClass, ErrorCodes, ThrottleScope};
pub use gateway::*;
pub use outbound::*;
pub use outcome::SendOutcome;
pub use pricing::{PriceChange, Pricing, PricingSource, ReturnedReservation, StatusPricing};
pub use status::SendStatus;
pub use submission::{HeaderSubmission, TemplateSubmission};
pub use template::*;
pub use upload::{UploadContent, UploadFile};
