//! `cargo xtask token`: prints a session token for the development server.

use anyhow::{Context, Result, bail};
use recado_testkit::paths;
use recado_testkit::token::{sign, user_id};

use crate::state;

struct Request {
    email: String,
    user: Option<String>,
    name: Option<String>,
    hours: u64,
}

/// `cargo xtask token`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let request = parse(args)?;
    let secret = match std::env::var("SESSION_JWT_SECRET") {
        Ok(secret) => secret,
        Err(_) => state::value(&state::dev_secrets(&paths::state()?)?, "SESSION_JWT_SECRET")?.to_owned(),
    };
    let user = request.user.unwrap_or_else(|| user_id(&request.email));
    println!(
        "{}",
        sign(&secret, &user, &request.email, request.name.as_deref(), request.hours)?
    );
    Ok(())
}

fn parse(args: &[String]) -> Result<Request> {
    let mut request = Request {
        email: String::new(),
        user: None,
        name: None,
        hours: 24,
    };
    let mut rest = args.iter();
    while let Some(option) = rest.next() {
        let Some(value) = rest.next() else {
            bail!("{option} needs a value");
        };
        match option.as_str() {
            "--email" => value.clone_into(&mut request.email),
            "--user" => request.user = Some(value.clone()),
            "--name" => request.name = Some(value.clone()),
            "--hours" => request.hours = value.parse().context("--hours is not a number")?,
            unknown => bail!("token has no option {unknown}"),
        }
    }
    if request.email.is_empty() {
        bail!("token requires --email");
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn token_options_are_validated() {
        assert!(parse(&args("--user x")).is_err());
        assert!(parse(&args("--email")).is_err());
        assert!(parse(&args("--email a@b --hours many")).is_err());
        assert!(parse(&args("--email a@b --frobnicate 1")).is_err());
        assert_eq!(parse(&args("--email a@b --hours 3")).unwrap().hours, 3);
    }
}
