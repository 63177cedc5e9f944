//! The output of `cargo xtask dev` when everything runs: addresses, logs, and the main job as commands to paste.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use recado_testkit::demo_account;
use recado_testkit::product::{Addresses, variables};
use recado_testkit::state::{Env, value};

use crate::guides::page;

const README: &str = include_str!("../../../README.md");

pub(crate) fn print(env: &Env, at: &Addresses, server_env: &Path, logs: &[&Path], took: Duration) -> Result<()> {
    let base = at.base_url();
    println!(
        "\nRecado is ready after {:.1} s. Ctrl-C stops it; the data remains.\n",
        took.as_secs_f64()
    );
    println!("server      {base}");
    println!(
        "account     Loja Exemplo ({}), owner {}",
        demo_account::ACCOUNT,
        demo_account::EMAIL
    );
    println!("admin       {}", demo_account::ADMIN);
    println!(
        "simulators  WhatsApp http://{}, payment http://{}, AI http://{}, mail smtp://{} (printed to the simulators' log)",
        at.whatsapp, at.payment, at.ai, at.smtp
    );
    println!(
        "payments    Pix and boletos are paid after 5 s; by hand: POST http://{}/_sim/payments/<id>/confirm, /overdue, /refund",
        at.payment
    );
    println!(
        "receiver    http://{}/... for webhooks; received webhooks: GET /_sim/deliveries there",
        at.receiver
    );
    println!("database    {}", value(env, "DATABASE_URL")?);
    for log in logs {
        println!("log         {}", log.display());
    }
    println!("\nThe main job: paste this into bash, in this directory. (Here a campaign waits 20 ms between messages,");
    println!("CAMPAIGN_MESSAGE_DELAY_MS; the default is 200 ms.)\n");
    for (name, value) in variables(env, at, server_env)? {
        println!("{name}='{value}'");
    }
    println!("{}", main_job());
    Ok(())
}

/// The commands of README.md from contacts to a sent campaign. They need `BASE` and `KEY`, bash, curl, grep, cut and
/// date.
fn main_job() -> String {
    let mut sections = README.split("\n## ");
    let section = sections.find_map(|section| section.strip_prefix("The main job\n"));
    let blocks = page::blocks(section.unwrap_or_default());
    blocks.into_iter().map(|(_, block)| block + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn main_job_is_valid_bash() {
        let out = Command::new("bash").args(["-n", "-c", &main_job()]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    #[test]
    fn main_job_takes_the_first_id_of_a_response() {
        let script = "first_id() { grep -o '\"id\":\"[^\"]*\"' | head -n 1 | cut -d '\"' -f 4; }";
        assert!(main_job().contains(script));
        assert!(main_job().contains("/execute"));
        let body = r#"{"data":{"account_id":"no","id":"yes","parts":[{"id":"no"}]}}"#;
        let out = Command::new("bash")
            .args(["-c", &format!("{script}; echo '{body}' | first_id")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "yes\n");
    }
}
