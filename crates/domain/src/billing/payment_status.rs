//! Status of a payment at the gateway.

use serde::{Deserialize, Serialize};

/// Status of a payment as the gateway names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum PaymentStatus {
    /// Waits for the payer.
    Pending,
    /// The payment is guaranteed; the money may arrive later.
    Confirmed,
    /// The money arrived.
    Received,
    /// The payer paid outside the gateway.
    ReceivedInCash,
    /// The payment is late.
    Overdue,
    /// Any other status, which has no effect. Never holds the name of one above.
    Other(String),
}

impl PaymentStatus {
    /// The gateway's name: stored and published.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "PENDING",
            Self::Confirmed => "CONFIRMED",
            Self::Received => "RECEIVED",
            Self::ReceivedInCash => "RECEIVED_IN_CASH",
            Self::Overdue => "OVERDUE",
            Self::Other(name) => name,
        }
    }
}

impl From<String> for PaymentStatus {
    fn from(name: String) -> Self {
        match name.as_str() {
            "PENDING" => Self::Pending,
            "CONFIRMED" => Self::Confirmed,
            "RECEIVED" => Self::Received,
            "RECEIVED_IN_CASH" => Self::ReceivedInCash,
            "OVERDUE" => Self::Overdue,
            _ => Self::Other(name),
        }
    }
}

impl From<PaymentStatus> for String {
    fn from(status: PaymentStatus) -> Self {
        status.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payment_status_keeps_the_gateways_name() {
        for name in [
            "PENDING",
            "CONFIRMED",
            "RECEIVED",
            "RECEIVED_IN_CASH",
            "OVERDUE",
            "REFUNDED",
            "overdue",
            "",
        ] {
            let status = PaymentStatus::from(name.to_owned());
            assert_eq!(status.as_str(), name);
            let is_other = matches!(status, PaymentStatus::Other(_));
            assert_eq!(is_other, matches!(name, "REFUNDED" | "overdue" | ""), "{name}");
            let json = serde_json::to_string(&status).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<PaymentStatus>(&json).unwrap(), status);
        }
    }
}
