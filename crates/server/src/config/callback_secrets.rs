//! The secrets that sign WhatsApp's callbacks. Several are valid at once, so that numbers of several apps can be
//! connected, and a secret can be replaced without losing callbacks.

use secrecy::SecretString;

use super::values::{ConfigError, Source, invalid};

const MAX_SECRETS: usize = 10;

/// `WHATSAPP_APP_SECRET`: 1 to 10 secrets, separated by commas. Empty: it is not set.
pub(super) fn whatsapp(source: Source<'_>) -> Result<Vec<SecretString>, ConfigError> {
    let name = "WHATSAPP_APP_SECRET";
    let Some(text) = source(name) else { return Ok(vec![]) };
    let secrets: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_valid = secrets.len() <= MAX_SECRETS && secrets.iter().all(|secret| !secret.is_empty());
    if is_valid {
        Ok(secrets.into_iter().map(SecretString::from).collect())
    } else {
        Err(invalid(name, "must be 1 to 10 secrets, separated by commas"))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn app_secret_is_a_list_of_at_most_ten() {
        let read = |text: String| whatsapp(&move |_| Some(text.clone()));
        let exposed = |secrets: Vec<SecretString>| -> Vec<String> {
            secrets.iter().map(|secret| secret.expose_secret().to_owned()).collect()
        };
        assert_eq!(exposed(read("one".into()).unwrap()), ["one"]);
        assert_eq!(exposed(read(" one , two".into()).unwrap()), ["one", "two"]);
        assert!(read(["s"; 10].join(",")).is_ok());
        for wrong in ["one,", ",", "one,,two", &["s"; 11].join(",")] {
            assert_eq!(
                read(wrong.to_owned()).unwrap_err().variable,
                "WHATSAPP_APP_SECRET",
                "{wrong}"
            );
        }
        assert!(whatsapp(&|_| None).unwrap().is_empty());
    }
}
