//! Tests of files with WhatsApp user ids.

use super::*;

/// The phone number, user id and name of each row of each batch.
fn written(batches: &[Vec<ImportRow>]) -> Vec<Vec<[&str; 3]>> {
    let keys = |row: &ImportRow| -> [String; 3] {
        let contact = &row.contact;
        let phone = contact.phone.as_ref().map(ToString::to_string).unwrap_or_default();
        [
            phone,
            contact.wa_user_id.clone().unwrap_or_default(),
            contact.name.clone(),
        ]
    };
    let leak = |text: String| -> &'static str { text.leak() };
    let batches = batches
        .iter()
        .map(|rows| rows.iter().map(|row| keys(row).map(leak)).collect());
    batches.collect()
}

#[tokio::test]
async fn csv_import_reads_user_ids() {
    let file = "name,WA_User_Id,phone\nAna, BR.1a ,\nBia,,11961234567\nCaio,US.ENT.2b,11961234568\nDu,,\nEva,x,\nAna S.,BR.1a,\n";
    let (report, batches) = import(file).await;
    let expected = [
        (5, "has neither phone nor wa_user_id"),
        (6, "wa_user_id is not a valid WhatsApp user id"),
    ];
    assert_eq!(messages(&report.unwrap()), expected);
    let rows = [
        ["", "BR.1a", "Ana S."],
        ["+5511961234567", "", "Bia"],
        ["+5511961234568", "US.ENT.2b", "Caio"],
    ];
    assert_eq!(written(&batches), [rows]);
    let (report, batches) = import("wa_user_id,name\nBR.1,Ana\n").await;
    assert_eq!(
        (report.unwrap().imported, written(&batches)),
        (1, vec![vec![["", "BR.1", "Ana"]]])
    );
}

/// Rows that share only one of their keys depend on what is stored, so the earlier ones are written first.
#[tokio::test]
async fn import_writes_a_batch_before_a_row_with_other_keys() {
    let (ana, bia) = ("+5511961234567", "+5511961234568");
    let cases = [
        (
            format!("A,{ana},\nB,{ana},BR.1\nC,{ana},\nD,{ana},BR.1\n"),
            vec![vec![[ana, "BR.1", "D"]]],
        ),
        (
            format!("A,{ana},BR.1\nB,{ana},BR.2\n"),
            vec![vec![[ana, "BR.1", "A"]], vec![[ana, "BR.2", "B"]]],
        ),
        (
            format!("A,{ana},BR.1\nB,{bia},BR.1\n"),
            vec![vec![[ana, "BR.1", "A"]], vec![[bia, "BR.1", "B"]]],
        ),
        (
            format!("A,,BR.1\nB,{ana},BR.1\n"),
            vec![vec![["", "BR.1", "A"]], vec![[ana, "BR.1", "B"]]],
        ),
        (
            format!("A,{ana},BR.1\nB,,BR.1\n"),
            vec![vec![[ana, "BR.1", "A"]], vec![["", "BR.1", "B"]]],
        ),
        (
            format!("A,{ana},\nB,,BR.1\nC,{ana},BR.1\n"),
            vec![vec![[ana, "", "A"], ["", "BR.1", "B"]], vec![[ana, "BR.1", "C"]]],
        ),
    ];
    for (lines, expected) in cases {
        let (report, batches) = import(&format!("name,phone,wa_user_id\n{lines}")).await;
        assert_eq!(messages(&report.unwrap()), [], "{lines}");
        assert_eq!(written(&batches), expected, "{lines}");
    }
}

/// The lines that name a refused user id are skipped; another line of the same phone number is written.
#[tokio::test]
async fn import_skips_only_lines_with_a_refused_user_id() {
    for (reason, message) in [
        (RowRefusal::UserIdTaken, "wa_user_id belongs to another contact"),
        (
            RowRefusal::UserIdDiffers,
            "wa_user_id is not the one that the contact with this phone has",
        ),
    ] {
        let mut store = MockContactStore::new();
        store.expect_upsert().times(2).returning(move |_, _, rows, _| {
            Ok(match rows[0].contact.wa_user_id {
                Some(_) => refused(reason.clone()),
                None => {
                    assert_eq!(rows[0].contact.name, "A");
                    BatchOutcome::Written(Upserted {
                        imported: 0,
                        updated: 1,
                    })
                }
            })
        });
        let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant(), ImportFormat::Csv);
        let file = b"name,phone,wa_user_id\nA,11961234567,\nB,11961234567,BR.1\n";
        import.feed(file).await.unwrap();
        let report = import.finish().await.unwrap();
        assert_eq!((messages(&report), report.updated), (vec![(3, message)], 1));
    }
}
