"""Words that belong to one kind, of which somebody mostly has one: phones, cars, occupations.

The tables are what a person knows of the world and a rule does not: that a Pixel is a phone, and
that whoever eats chicken is no vegetarian.
"""

from __future__ import annotations

from typing import Final

KINDS: Final = {
    "phone": "iphone|pixel|galaxy|fairphone|oneplus|xiaomi|samsung galaxy|motorola|huawei",
    "computer": "macbook|thinkpad|chromebook|surface|dell xps|imac",
    "car": "golf|tesla|volvo|toyota|honda|bmw|audi|ford|skoda|vw|volkswagen|fiat|renault|peugeot"
    "|mazda|hyundai|kia|subaru|opel|seat|mercedes|nissan|jeep|mini|porsche|dacia|yaris|civic"
    "|corolla"
    "|polo|clio|passat",
    "system": "windows|linux|ubuntu|macos|fedora|debian|arch",
    "editor": "vim|neovim|emacs|vscode|vs code|pycharm|sublime|intellij|cursor|zed",
    "browser": "chrome|firefox|safari|brave|opera|edge",
    "hosting": "heroku|aws|azure|gcp|google cloud|fly.io|vercel|netlify|render|railway|digitalocean"
    "|hetzner|linode|cloudflare",
    "database": "postgres|postgresql|mysql|mariadb|mongodb|sqlite|cockroachdb|dynamodb|oracle",
    "bank": "barclays|monzo|hsbc|revolut|n26|lloyds|natwest|santander|chase|wells fargo|citibank"
    "|sparkasse|ing|starling|deutsche bank|commerzbank",
    "framework": "django|flask|fastapi|rails|laravel|spring|express|react|vue|angular|svelte"
    "|next.js",
    "notes": "notion|obsidian|evernote|onenote|roam|logseq|apple notes|google keep",
    "chat": "slack|teams|discord|mattermost|zulip",
}
"""Products by kind, as `spoken` writes them."""

CLASSES: Final = {
    "colour": "red blue green yellow black white grey gray brown pink purple orange blonde blond "
    "silver"
    " gold beige turquoise",
    "size": "xs s m l xl xxl small medium large",
    "level": "beginner intermediate advanced fluent a1 a2 b1 b2 c1 c2",
    "often": "daily weekly monthly yearly fortnightly",
    "transport": "bus bike bicycle car train tram foot subway scooter ferry",
    "side": "left right upper lower top bottom",
    "shift": "nights days evenings mornings weekends",
    "rank": "junior senior mid-level lead principal staff trainee",
    "hours": "part full part-time full-time half",
    "way": "drive cycle walk",
    "payment": "visa mastercard paypal cash amex",
    "pronouns": "they them he him she her they/them he/him she/her",
    "time of day": "morning afternoon evening night",
    "season": "spring summer autumn winter fall",
    "work": "remote remotely hybrid onsite freelance parttime fulltime",
}
"""Values that take each other's place in a statement of the same words."""

LANGUAGES: Final = (
    "english|german|french|spanish|italian|portuguese|dutch|polish|russian|chinese|mandarin"
    "|japanese"
    "|korean|turkish|arabic|hindi|swedish|danish|norwegian|finnish|greek|czech|ukrainian|deutsch"
    "|englisch|französisch|spanisch|italienisch"
)

OCCUPATIONS: Final = (
    "nurse|teacher|engineer|developer|programmer|tester|designer|doctor|lawyer|chef|cook|baker"
    "|waiter|waitress|barista|accountant|analyst|consultant|manager|architect|scientist|researcher"
    "|writer|journalist|editor|photographer|electrician|plumber|carpenter|mechanic|driver|pilot"
    "|firefighter|paramedic|pharmacist|dentist|therapist|psychologist|librarian|translator"
    "|salesperson|cashier|receptionist|secretary|assistant|farmer|gardener|hairdresser|recruiter"
    "|marketer|economist|professor|lecturer|postdoc|intern|apprentice|freelancer|contractor|founder"
    "|director|administrator|technician|welder|butcher|florist|judge|clerk|midwife|surgeon|vet"
    "|student|trainee|data scientist|product manager"
)

_AGAIN: Final = r"(?: \w+){0,2}? (?:again|now|wieder|de nouveau|ora|ahora)"
_MEATS: Final = r"(?:meat|fish|chicken|beef|pork|steak|bacon|sausages?|ham|turkey|lamb|burgers)"
_ALCOHOLS: Final = r"(?:alcohol|wine|beer|whisky|whiskey|vodka|gin|cocktails)"
_EATING: Final = r"(?:eat|eating|have|having)"
_NEVER: Final = r"(?:do not|no longer|never|am not|stopped|quit|gave up|have given up|cut out)"

DIETS: Final = {
    "meat": (
        r"^ i (?:am|have gone|went|have become|became|have been|turned)(?: now| strictly| an?| "
        r"back to"
        r" being| fully| again| currently)* (?:vegan|vegetarian|veggie|plant based)"
        r"(?: now| again| and \w+)?(?: (?:for|since|except|but) .*)? $"
        rf"|^ i {_NEVER}(?: {_EATING})? (?:any )?meat(?: any ?more| any longer| now)? $"
        r"|^ ich (?:bin|lebe|ernähre mich) (?:jetzt )?(?:vegan(?:erin|er)?|vegetari\w+) $"
        r"|^ ich esse (?:jetzt )?kein fleisch(?: mehr)? $|^ ich no longer esse fleisch $"
        r"|^ je suis (?:maintenant )?(?:végétarien(?:ne)?|végane?|vegan) $"
        r"|^ je (?:ne mange (?:pas|plus)|no longer mange) de viande $"
        r"|^ (?:yo )?(?:ahora )?soy (?:ahora )?(?:vegetarian[oa]|vegan[oa]) $"
        r"|^ (?:yo )?(?:ya )?no como carne $"
        r"|^ (?:io )?(?:ora |adesso )?sono (?:ora )?(?:vegetarian[oa]|vegan[oa]) $"
        r"|^ (?:io )?(?:non mangio (?:più )?|no longer mangio )carne $",
        r"^ i (?:have |just |now )*(?:started |began |am back to |went back to |am "
        rf")?(?:{_EATING}|eat)?"
        rf"(?: \w+ and)? {_MEATS}(?: and \w+)?(?: again| now){{1,2}}(?: .*)? $"
        rf"|^ i (?:now|do) (?:eat|eating) (?:\w+ and )?{_MEATS}(?: .*)? $"
        r"|^ i (?:am no longer|stopped being|quit being)(?: an?)? (?:vegan|vegetarian)(?: .*)? $"
        r"|^ ich esse (?:\w+ )?wieder (?:\w+ )?(?:fleisch|fisch) $"
        r"|^ ich (?:bin (?:nicht mehr|keine?)|no longer bin) (?:vegan|vegetari|veganer)\w*(?: "
        r"mehr)? $"
        r"|^ je (?:re)?mange (?:à nouveau |de nouveau |encore |maintenant )?(?:de la viande|du "
        r"poisson)"
        r"(?: maintenant| de nouveau| à nouveau)* $"
        r"|^ je (?:ne suis plus|no longer suis) (?:végétarien(?:ne)?|végane?) $"
        r"|^ (?:yo )?(?:he vuelto a comer|vuelvo a comer|como otra vez|otra vez como|como) (?:carne"
        r"|pescado)(?: otra vez| de nuevo| ahora)* $"
        r"|^ (?:yo )?ya no soy (?:vegetarian[oa]|vegan[oa]) $"
        r"|^ (?:io )?(?:mangio di nuovo|ho ripreso a mangiare|mangio) (?:la )?carne(?: di nuovo)? $"
        r"|^ (?:io )?(?:non sono più|no longer sono) (?:vegetarian[oa]|vegan[oa]) $",
    ),
    "alcohol": (
        r"^ i (?:do not|no longer|never|stopped|quit|gave up|have given up|cut out) "
        r"(?:drink |drinking )?(?:any )?alcohol(?: any ?more| any longer| at all)? $"
        r"|^ i (?:am|have been|went)(?: now)? (?:sober|teetotal)(?: now)?(?: for .*)? $"
        r"|^ ich trinke (?:jetzt )?keinen alkohol(?: mehr)? $|^ ich no longer trinke alkohol $"
        r"|^ je ne bois (?:pas|plus) d alcool $|^ (?:yo )?(?:ya )?no bebo alcohol $"
        r"|^ (?:io )?non bevo (?:più )?alcol $",
        r"^ i (?:have |just |now )*(?:started |began |am back to |went back to |am )?(?:drink"
        r"|drinking)?"
        rf" {_ALCOHOLS}(?: and \w+)? (?:again|now)(?: .*)? $"
        rf"|^ i (?:now|do) drink (?:\w+ )?{_ALCOHOLS}(?: .*)? $"
        r"|^ i (?:drink|started drinking|am drinking) again(?: .*)? $"
        r"|^ ich trinke wieder (?:alkohol|wein|bier) $|^ je (?:re)?bois de nouveau "
        r"|^ (?:yo )?vuelvo a beber |^ (?:io )?bevo di nuovo ",
    ),
}
"""For what somebody eats or drinks, how they say that they do not, and that they do."""

TIERS: Final = (
    "free|basic|starter|standard|plus|pro|premium|business|enterprise|family|student|individual"
    "|team"
)
