"""A few records, written by hand, in the formats of the published files."""

import json


def save(path, data):
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def save_lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ana",
            "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "I sold the red boat."}],
            "session_2_date_time": "4 May",
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": "I bought a red boat."},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "The weather is fine."},
            ],
            "session_1_date_time": "1 May",
        },
        "qa": [
            {
                "question": "Who bought a boat?",
                "answer": "Ana",
                "evidence": ["D1:1"],
                "category": 4,
            },
            {
                "question": "Who sold and bought it?",
                "answer": 7,
                "evidence": ["D1:1; D2:1", "D9:9"],
                "category": 1,
            },
            {"question": "Never said?", "evidence": ["D1:1"], "category": 5},
            {"question": "Lost?", "answer": "x", "evidence": ["D9:9"], "category": 2},
        ],
    }
]

HOTPOTQA = [
    {
        "_id": "h1",
        "question": "Where was the maker of the bell born?",
        "answer": "Oslo",
        "type": "bridge",
        "supporting_facts": [["Bell", 0], ["Maker", 1], ["Gone", 0]],
        "context": [
            ["Bell", ["The bell was made by Liv Dahl.", " ", " It is loud."]],
            ["Maker", ["Liv Dahl makes bells.", " She was born in Oslo."]],
            ["Cow", ["Cows wear bells."]],
        ],
    }
]

MUSIQUE = [
    {
        "id": "2hop__1_2",
        "question": "Where was the maker of the bell born?",
        "answer": "Oslo",
        "answer_aliases": ["Kristiania"],
        "answerable": True,
        "question_decomposition": [
            {"answer": "Liv Dahl", "paragraph_support_idx": 0},
            {"answer": "Kristiania city", "paragraph_support_idx": 2},
        ],
        "paragraphs": [
            {
                "idx": 0,
                "title": "Bell",
                "paragraph_text": "It is loud. The bell was made by Liv Dahl.",
                "is_supporting": True,
            },
            {
                "idx": 1,
                "title": "Cow",
                "paragraph_text": "Liv Dahl has a cow.",
                "is_supporting": False,
            },
            {
                "idx": 2,
                "title": "Maker",
                "paragraph_text": "She was born in Oslo. She died young.",
                "is_supporting": True,
            },
        ],
    },
    {
        "id": "2hop__3_4",
        "question": "Nobody knows?",
        "answer": "",
        "answerable": False,
        "question_decomposition": [],
        "paragraphs": [],
    },
]

SQUAD = {
    "data": [
        {
            "title": "Boats",
            "paragraphs": [
                {
                    "context": "The Vega was built in Bergen. It has two masts.",
                    "qas": [
                        {
                            "id": "s1",
                            "question": "Where was the Vega built?",
                            "answers": [{"text": "Bergen"}, {"text": "Bergen"}],
                        },
                        {"id": "s3", "question": "Who?", "answers": [{"text": "Nobody"}]},
                    ],
                },
                {
                    "context": "The Sirius was built in Hamburg. Bergen bought it.",
                    "qas": [
                        {
                            "id": "s2",
                            "question": "Where was the Sirius built?",
                            "answers": [{"text": "Hamburg"}],
                        }
                    ],
                },
            ],
        }
    ]
}


HOTPOTQA_ROW = {
    "id": "h1",
    "question": "Where was the maker of the bell born?",
    "answer": "Oslo",
    "type": "bridge",
    "supporting_facts": {"title": ["Bell", "Maker"], "sent_id": [0, 1]},
    "context": {
        "title": ["Bell", "Maker"],
        "sentences": [["Liv made it."], ["Liv makes bells.", " She was born in Oslo."]],
    },
}
SQUAD_ROWS = [
    {
        "id": f"s{number}",
        "title": "Boats",
        "context": context,
        "question": "Where was it built?",
        "answers": {"text": [answer], "answer_start": [0]},
    }
    for number, (context, answer) in enumerate(
        [("The Vega is from Bergen.", "Bergen"), ("The Nova is from Turku.", "Turku")] * 2
    )
]
