//! The arguments of `recado doctor`.

use recado_domain::shared::AccountId;
use uuid::Uuid;

/// What to check and how to print it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Print one JSON document instead of lines.
    pub json: bool,
    /// Check the profiles of this account alone.
    pub account: Option<AccountId>,
}

impl DoctorOptions {
    /// None: the arguments are not `[--json] [--account ID]`, in any order and each at most once.
    pub fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match *argument {
                "--json" if !options.json => options.json = true,
                "--account" if options.account.is_none() => {
                    options.account = Some(AccountId(Uuid::parse_str(rest.next()?).ok()?));
                }
                _ => return None,
            }
        }
        Some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_options_are_accepted_in_any_order_and_once() {
        let id = "0190a1b2-c3d4-7e5f-8a9b-000000000001";
        let account = Some(AccountId(Uuid::parse_str(id).unwrap()));
        let options = |json, account| Some(DoctorOptions { json, account });
        assert_eq!(DoctorOptions::parse(&[]), options(false, None));
        assert_eq!(DoctorOptions::parse(&["--json"]), options(true, None));
        assert_eq!(DoctorOptions::parse(&["--account", id]), options(false, account));
        for arguments in [["--json", "--account", id], ["--account", id, "--json"]] {
            assert_eq!(DoctorOptions::parse(&arguments), options(true, account));
        }
        let wrong: [&[&str]; 6] = [
            &["--yaml"],
            &["json"],
            &["--json", "--json"],
            &["--account"],
            &["--account", "shop"],
            &["--account", id, "--account", id],
        ];
        for arguments in wrong {
            assert_eq!(DoctorOptions::parse(arguments), None, "{arguments:?}");
        }
    }
}
