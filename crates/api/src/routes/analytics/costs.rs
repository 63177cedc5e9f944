//! Route of the report on costs.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::analytics::{CostGroupBy, CostQuery, CostReport, Costs, Period, Zone};
use time::Date;
use time::macros::format_description;

pub(crate) use super::TAG;
use super::{PERIOD, ZONE, period_parameters};
use crate::error::{ApiError, ErrorCode};
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::operation::{Operation, Parameter, data};
use crate::web::parameters::{EnumParam, IdParam, TextParam};
use crate::web::query::Params;
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};

const FROM: TextParam = TextParam::new(
    "from",
    "First day of the report, with `to` and instead of `period`.",
    "2026-03-01",
);

const TO: TextParam = TextParam::new("to", "Last day of the report: at most 366 days in total.", "2026-03-31");

const GROUP_BY: EnumParam<CostGroupBy> = EnumParam {
    name: "group_by",
    description: "The dimension of the groups.",
    accepted: "campaign, category, market, number, template or day",
    example: Some(CostGroupBy::Day),
};

const CAMPAIGN: IdParam = IdParam::new("campaign_id", "Only messages of this campaign.");

fn date(params: &mut Params, param: &TextParam) -> Option<Date> {
    let text = params.text(param)?;
    let format = format_description!("[year]-[month]-[day]");
    let date = Date::parse(&text, &format).ok().filter(|date| date.year() >= 1);
    if date.is_none() {
        params.add_error(param.name, "must be a date like 2026-01-31");
    }
    date
}

/// `GET /api/analytics/costs`
async fn report(
    costs: Data<Costs>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = CostQuery {
        period: params.one_of(&PERIOD),
        from: date(&mut params, &FROM),
        to: date(&mut params, &TO),
        zone: params
            .parsed(ZONE.name, "the name of a time zone, such as America/Sao_Paulo")
            .unwrap_or(Zone::UTC),
        group_by: params.one_of(&GROUP_BY).unwrap_or(CostGroupBy::Day),
        campaign_id: params.id(&CAMPAIGN),
    };
    params.check()?;
    Ok(responses::ok(costs.report(&tenant, &query).await?))
}

pub(crate) const REPORT: Endpoint = endpoint!(report, {
    let description = "Returns what messages cost. A message counts once it was delivered or read, at the time of its \
                first status update with a price. The amount is WhatsApp's, else the rate of the rate card; a message \
                without either is `unpriced`. Currencies are never added.";
    Operation::new("Report costs", description)
        .takes_all(period_parameters(Period::Month))
        .takes(&FROM)
        .takes(&TO)
        .takes(Parameter::from(&GROUP_BY).default(CostGroupBy::Day.as_str()))
        .takes(&CAMPAIGN)
        .responds(data::<CostReport>("The report."))
        .refuses(
            ErrorCode::Invalid,
            "`from` and `to` are not a period of at most 366 days.",
        )
});
