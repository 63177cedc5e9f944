//! The other names of time zones.
//!
//! Source: the links of the IANA time zone database (2025b) whose name is not in `zone.tab`. A name that the file `backward`
//! notes beside a link (`#=`) is its target, for example that of a country that shares the clocks of another one.

/// Each other name, with the name of the zone. No target is another name.
const ALIASES: &str = "Africa/Asmera=Africa/Asmara Africa/Timbuktu=Africa/Bamako \
    America/Argentina/ComodRivadavia=America/Argentina/Catamarca America/Atka=America/Adak \
    America/Buenos_Aires=America/Argentina/Buenos_Aires America/Catamarca=America/Argentina/Catamarca \
    America/Coral_Harbour=America/Atikokan America/Cordoba=America/Argentina/Cordoba \
    America/Ensenada=America/Tijuana America/Fort_Wayne=America/Indiana/Indianapolis America/Godthab=America/Nuuk \
    America/Indianapolis=America/Indiana/Indianapolis America/Jujuy=America/Argentina/Jujuy \
    America/Knox_IN=America/Indiana/Knox America/Louisville=America/Kentucky/Louisville \
    America/Mendoza=America/Argentina/Mendoza America/Montreal=America/Toronto America/Nipigon=America/Toronto \
    America/Pangnirtung=America/Iqaluit America/Porto_Acre=America/Rio_Branco America/Rainy_River=America/Winnipeg \
    America/Rosario=America/Argentina/Cordoba America/Santa_Isabel=America/Tijuana America/Shiprock=America/Denver \
    America/Thunder_Bay=America/Toronto America/Virgin=America/St_Thomas America/Yellowknife=America/Edmonton \
    Antarctica/South_Pole=Antarctica/McMurdo Asia/Ashkhabad=Asia/Ashgabat Asia/Calcutta=Asia/Kolkata \
    Asia/Choibalsan=Asia/Ulaanbaatar Asia/Chongqing=Asia/Shanghai Asia/Chungking=Asia/Shanghai Asia/Dacca=Asia/Dhaka \
    Asia/Harbin=Asia/Shanghai Asia/Istanbul=Europe/Istanbul Asia/Kashgar=Asia/Urumqi Asia/Katmandu=Asia/Kathmandu \
    Asia/Macao=Asia/Macau Asia/Rangoon=Asia/Yangon Asia/Saigon=Asia/Ho_Chi_Minh Asia/Tel_Aviv=Asia/Jerusalem \
    Asia/Thimbu=Asia/Thimphu Asia/Ujung_Pandang=Asia/Makassar Asia/Ulan_Bator=Asia/Ulaanbaatar \
    Atlantic/Faeroe=Atlantic/Faroe Atlantic/Jan_Mayen=Arctic/Longyearbyen Australia/ACT=Australia/Sydney \
    Australia/Canberra=Australia/Sydney Australia/Currie=Australia/Hobart Australia/LHI=Australia/Lord_Howe \
    Australia/NSW=Australia/Sydney Australia/North=Australia/Darwin Australia/Queensland=Australia/Brisbane \
    Australia/South=Australia/Adelaide Australia/Tasmania=Australia/Hobart Australia/Victoria=Australia/Melbourne \
    Australia/West=Australia/Perth Australia/Yancowinna=Australia/Broken_Hill Brazil/Acre=America/Rio_Branco \
    Brazil/DeNoronha=America/Noronha Brazil/East=America/Sao_Paulo Brazil/West=America/Manaus \
    Canada/Atlantic=America/Halifax Canada/Central=America/Winnipeg Canada/Eastern=America/Toronto \
    Canada/Mountain=America/Edmonton Canada/Newfoundland=America/St_Johns Canada/Pacific=America/Vancouver \
    Canada/Saskatchewan=America/Regina Canada/Yukon=America/Whitehorse Chile/Continental=America/Santiago \
    Chile/EasterIsland=Pacific/Easter Cuba=America/Havana Egypt=Africa/Cairo Eire=Europe/Dublin Etc/GMT+0=Etc/GMT \
    Etc/GMT-0=Etc/GMT Etc/GMT0=Etc/GMT Etc/Greenwich=Etc/GMT Etc/UCT=Etc/UTC Etc/Universal=Etc/UTC Etc/Zulu=Etc/UTC \
    Europe/Belfast=Europe/London Europe/Kiev=Europe/Kyiv Europe/Nicosia=Asia/Nicosia Europe/Tiraspol=Europe/Chisinau \
    Europe/Uzhgorod=Europe/Kyiv Europe/Zaporozhye=Europe/Kyiv GB-Eire=Europe/London GB=Europe/London GMT+0=Etc/GMT \
    GMT-0=Etc/GMT GMT0=Etc/GMT GMT=Etc/GMT Greenwich=Etc/GMT Hongkong=Asia/Hong_Kong Iceland=Atlantic/Reykjavik \
    Iran=Asia/Tehran Israel=Asia/Jerusalem Jamaica=America/Jamaica Japan=Asia/Tokyo Kwajalein=Pacific/Kwajalein \
    Libya=Africa/Tripoli Mexico/BajaNorte=America/Tijuana Mexico/BajaSur=America/Mazatlan \
    Mexico/General=America/Mexico_City NZ-CHAT=Pacific/Chatham NZ=Pacific/Auckland Navajo=America/Denver \
    PRC=Asia/Shanghai Pacific/Enderbury=Pacific/Kanton Pacific/Johnston=Pacific/Honolulu \
    Pacific/Ponape=Pacific/Pohnpei Pacific/Samoa=Pacific/Pago_Pago Pacific/Truk=Pacific/Chuuk \
    Pacific/Yap=Pacific/Chuuk Poland=Europe/Warsaw Portugal=Europe/Lisbon ROC=Asia/Taipei ROK=Asia/Seoul \
    Singapore=Asia/Singapore Turkey=Europe/Istanbul UCT=Etc/UTC US/Alaska=America/Anchorage US/Aleutian=America/Adak \
    US/Arizona=America/Phoenix US/Central=America/Chicago US/East-Indiana=America/Indiana/Indianapolis \
    US/Eastern=America/New_York US/Hawaii=Pacific/Honolulu US/Indiana-Starke=America/Indiana/Knox \
    US/Michigan=America/Detroit US/Mountain=America/Denver US/Pacific=America/Los_Angeles US/Samoa=Pacific/Pago_Pago \
    UTC=Etc/UTC Universal=Etc/UTC W-SU=Europe/Moscow Zulu=Etc/UTC EST=America/Panama MST=America/Phoenix \
    HST=Pacific/Honolulu CET=Europe/Brussels MET=Europe/Brussels EET=Europe/Athens WET=Europe/Lisbon \
    EST5EDT=America/New_York CST6CDT=America/Chicago MST7MDT=America/Denver PST8PDT=America/Los_Angeles";

/// The zone's name of `zone.tab`, or the given name if the database has no link with it.
pub(super) fn canonical(name: &str) -> &str {
    let mut links = ALIASES.split(' ').filter_map(|link| link.split_once('='));
    links
        .find_map(|(alias, target)| (alias == name).then_some(target))
        .unwrap_or(name)
}

/// The other names of a zone.
pub(super) fn aliases(canonical: &str) -> impl Iterator<Item = &str> {
    let links = ALIASES.split(' ').filter_map(|link| link.split_once('='));
    links.filter_map(move |(alias, target)| (target == canonical).then_some(alias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::ZoneName;

    #[test]
    fn names_without_a_region_are_aliases() {
        let names: Vec<String> = jiff::tz::db()
            .available()
            .map(|name| name.to_string())
            // `Factory` stands for a clock that was not set, and names no region.
            .filter(|name| !name.contains('/') && name != "Factory" && name.parse::<ZoneName>().is_ok())
            .collect();
        assert!(names.len() > 40);
        for name in names {
            assert_ne!(canonical(&name), name);
        }
    }

    /// The clocks of both names are the same now, and all names are accepted.
    #[test]
    fn every_alias_names_a_zone_of_the_database() {
        for (alias, target) in ALIASES.split(' ').map(|link| link.split_once('=').unwrap()) {
            assert_eq!(canonical(target), target, "{alias}");
            let offsets = [alias, target].map(|name| {
                let zone = name.parse::<ZoneName>().unwrap().zone();
                [1, 7].map(|month| {
                    let noon = jiff::civil::date(2025, month, 15).at(12, 0, 0, 0);
                    noon.to_zoned(zone.0.clone()).unwrap().offset()
                })
            });
            assert_eq!(offsets[0], offsets[1], "{alias}");
        }
    }
}
