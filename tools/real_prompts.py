"""The prompts that record_real.py runs through real models: short, long, code, multilingual, emoji, odd spacing, chats.

Texts are in Unicode NFC, so that it does not matter whether a tokenizer normalises.
"""

PLAIN = {
    "sky": "The sky is blue because",
    "one-word": "Hello",
    "capital": "The capital of France is",
    "count": "1, 2, 3, 4, 5, 6,",
    "recipe": "To bake a simple loaf of bread, first mix",
    "story": "Once upon a time, in a village by the sea, there lived an old fisherman who",
    "history": "The Roman Empire reached its greatest extent under the emperor",
    "science": "Photosynthesis is the process by which plants",
    "arithmetic": "Question: What is 17 + 25?\nAnswer:",
    "list": "Three primary colours:\n1. Red\n2.",
    "letter": "Dear Sir or Madam,\n\nI am writing to you about the",
    "python": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    if n <',
    "rust": "fn main() {\n    let numbers = vec![1, 2, 3];\n    for",
    "c": '#include <stdio.h>\n\nint main(void) {\n\tprintf("',
    "html": "<!DOCTYPE html>\n<html>\n<head>\n  <title>",
    "sql": "SELECT name, COUNT(*) FROM orders WHERE",
    "json": '{"name": "Alice", "age": 30, "city": "',
    "french": "La tour Eiffel est située à Paris et elle a été construite",
    "german": "Die Straße führt über die Brücke und dann durch den Wald bis",
    "spanish": "El perro de mi vecino siempre ladra cuando",
    "chinese": "中国的首都是北京，它有着悠久的历史。",
    "japanese": "東京は日本の首都であり、",
    "russian": "Москва является столицей России и",
    "arabic": "القاهرة هي عاصمة مصر وهي",
    "hindi": "भारत की राजधानी नई दिल्ली है और",
    "emoji": "I love pizza 🍕 and 🎉 parties! My favourite emoji is",
    "family-emoji": "👩‍👩‍👧‍👦 is an emoji that shows",
    "spaces": "  two  spaces   three    four\n\n\n\tand a tab:",
    "punctuation": 'Wait... what?! (No -- really?) "Yes," she said;',
    "math": "The derivative of x^2 + 3x - 5 with respect to x is",
    "dialogue": "Teacher: What is the largest planet in our solar system?\nStudent:",
    "upper": "BREAKING NEWS: SCIENTISTS HAVE DISCOVERED",
    "long": (
        "The history of computing is longer than the history of computing hardware and includes methods intended for pen "
        "and paper or for chalk and slate, with or without the aid of tables. Early mechanical calculators were built in "
        "the seventeenth century by Schickard, Pascal and Leibniz. In the nineteenth century Charles Babbage designed the "
        "Analytical Engine, a general machine that was to be programmed with punched cards, an idea taken from the looms "
        "of Jacquard. Ada Lovelace wrote notes about the machine that contain what many call the first program. The engine "
        "was never finished. It took another hundred years until electronic machines, built from relays and then from "
        "vacuum tubes, could do what Babbage had dreamt of. After the invention of the transistor in 1947, computers became"
    ),
}

CHATS = {
    "chat-sky": [{"role": "user", "content": "Why is the sky blue?"}],
    "chat-system": [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "What is the boiling point of water?"},
    ],
    "chat-turns": [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Nice to meet you, Ada!"},
        {"role": "user", "content": "What is my name?"},
    ],
    "chat-code": [{"role": "user", "content": "Write a Python function that reverses a string."}],
    "chat-emoji": [{"role": "user", "content": "Explain 🌈 to a child, s'il vous plaît."}],
    "chat-haiku": [{"role": "user", "content": "Write a haiku about autumn leaves."}],
}

# For log-likelihoods: about 200 tokens of ordinary English with some numbers, names and punctuation.
SCORED = (
    "A lighthouse is a tower built to guide ships at night. The first famous one, the Pharos of Alexandria, stood for more "
    "than a thousand years and was counted among the seven wonders of the ancient world. Its fire could be seen, so the "
    "writers say, from a distance of 50 kilometres. In the eighteenth century, engineers such as John Smeaton learned how to "
    "build towers on rocks in the open sea; his Eddystone Lighthouse, finished in 1759, was made of interlocking blocks of "
    "granite and became the model for many others. The greatest step, however, was made by Augustin-Jean Fresnel, whose "
    "lens of thin glass rings gathered the light of a small lamp into one bright beam. Today most lighthouses are "
    'automatic: nobody climbs the stairs to trim the wick, and satellites tell the captain where he is. "But a light," '
    'said the last keeper of Fair Isle South when he left in 1998, "is a light." People still paint them, photograph '
    "them, and travel far to see them."
)

# Sources for a model that writes titles (encoder-decoder).
SOURCES = {
    "weather": "Heavy rain and strong winds hit the coast on Monday. Several roads were closed and trains were late.",
    "bug": "Fix a crash in the parser when the input file is empty. Add a test for the empty file.",
    "short": "Hello world",
    "login": "User reports that the login button does nothing after the last update on Android phones.",
    "summary": "summarize: The committee met on Tuesday to discuss the new budget for schools and decided to spend more on books.",
    "translate": "translate English to German: The house is wonderful.",
    "question": "What is the capital of Australia?",
    "code": "def add(a, b):\n    return a + b\n\nprint(add(2, 3))",
    "recipe": "Mix flour, water, salt and yeast. Knead the dough for ten minutes, let it rise for an hour and bake it at 220 degrees.",
    "space": "NASA announced that its probe has reached the orbit of Jupiter after a journey of five years.",
    "science": "Researchers found that bees can recognise human faces by using a mechanism similar to ours.",
    "french": "Le gouvernement a annoncé une nouvelle loi sur la protection de l'environnement.",
    "german": "Die Bundesregierung hat am Freitag ein neues Gesetz zum Schutz der Wälder beschlossen.",
    "numbers": "Sales rose from 1,200 units in 2019 to 3,450 units in 2023, an increase of 187.5 percent.",
    "database": "Migrate the user table from MySQL to PostgreSQL, keep the indexes and write a rollback script.",
    "refactor": "Refactor the HTTP client to use async IO and remove the thread pool.",
    "meeting": "Notes from the meeting: Anna will prepare the slides, Bob will call the customer, Carla will check the contract.",
    "review": "I bought this phone two months ago. The battery is great but the camera is disappointing in low light.",
    "sports": "The home team won the final 3-2 after extra time, thanks to two late goals by the young striker.",
    "docker": "How do I reduce the size of a Docker image for a Python web application?",
    "email": "Dear team, please remember to submit your time sheets by Friday at noon. Thank you, the office.",
    "emoji": "The new café ☕ opened yesterday and everybody loved the cake 🍰!",
    "spaces": "  too   many    spaces \n and a newline  ",
    "performance": "The page takes 12 seconds to load because every row runs its own query. Use a join and add a cache.",
    "long": SCORED,
}
TARGET = "The lighthouse: a short history of the towers that guide ships at night"

# For sentence embeddings.
SENTENCES = [
    "The cat sits on the mat.",
    "A cat is sitting on a mat.",
    "The stock market fell sharply on Monday.",
    "hello",
    "HELLO",
    "",
    "a",
    "How do I bake bread at home?",
    "Instructions for making a loaf of bread in your kitchen oven",
    "What is the capital of France?",
    "Paris is the capital and largest city of France.",
    'fn main() { println!("Hello, world!"); }',
    "SELECT * FROM users WHERE id = 42;",
    "La vie est belle quand le soleil brille à l'horizon.",
    "Übergrößenträger müssen öfter nähen.",
    "naïve café façade jalapeño",
    "東京は日本の首都です",
    "Москва — столица России",
    "I love pizza 🍕 and ice cream 🍦!",
    "  lots   of \t white \n space  ",
    "1234567890 3.14159 1e-5 50%",
    "e-mail: someone@example.com, see https://example.com/path?query=1#fragment",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "Don't stop; it's \"fine\" (isn't it?) -- yes...",
    PLAIN["long"],
    SCORED,
]

# For masked language models (_ is a gap) and taggers, by what the model was trained on.
MASKED = {
    "reactions": [
        "CC(C)S.Fc1cccnc1_>>CC(C)Sc1ncccc1F",
        "CCO>>CC_",
        "C_(=O)O.OCC>>CC(=O)OCC",
        "CC(=O)O.OCC>>CC(=_)OCC",
        "BrCc1ccccc1.C[O-]>>COCc1_cccc1",
        "Nc1ccccc1.CC(=O)Cl>>CC(=O)N_1ccccc1",
        "O=C(O)c1ccccc1.CN>>CNC(_O)c1ccccc1",
        "c1ccccc1_",
        "CC(C)(C)OC(=O)N1CCNCC1>>C1C_CCN1",
        "ClCCl.CCN(CC)_C.OCC",
        "[Na+].[_].CCO",
        "FC(F)(F)c1ccc(_)cc1",
        "CC_C",
        "C1CCOC1.[Li]CCCC>>_",
        "OB(O)c1ccccc1.Brc1ccncc1>>c1ccc(-c2cc_cc2)cc1",
        "N#Cc1ccccc1>>NCc1_cccc1",
        "O=[N+]([O-])c1ccccc1>>N_1ccccc1",
        "CS(=O)(=O)_.OCC>>CCOS(C)(=O)=O",
        "CCOC(=O)CC(=O)OCC._CBr",
        "C=CC=C.C=CC=O>>O=CC1CC=CC_1",
        "_>>CCO",
        "CC(=O)O_C(C)=O.Nc1ccccc1>>CC(=O)Nc1ccccc1",
        "c1ccc2[nH]cc_2c1",
        "CN(C)C=O.O=C(Cl)C(=O)Cl.OC(=O)c1ccc_cc1",
    ],
    "antibodies": [
        "QVQLV_SGAEVKKPGASVKVSCKASGYTFTSYGISWVRQAPGQGLEWMG",
        "EVQLVESGGGLVQPGGSLRLSC_ASGFTFSSYAMSWVRQAPGKGLEWVS",
        "QVQLQESGPGLVKPSETLSLTCTVSGGSIS_YYWSWIRQPPGKGLEWIG",
        "DIQMTQSPSSLSASVGDRVTITCRASQSISSYLNW_QQKPGKAPKLLIY",
        "EIVLTQSPGTLSLSPGERATLSCRASQSVSSSYLAWYQQKPGQAPRLLI_",
        "_VQLVQSGAEVKKPGSSVKVSCKASGGTFSSYAISWVRQAPGQGLEWMGG",
        "QVQLVESGGGVVQPGRSLRLSCAASGFTFSSYGMHWVRQ_PGKGLEWVAV",
        "EVQLLESGGGLVQPGGSLRLSCAASGFTFS_YAMSWVRQAPGKGLEWVSA",
        "QSVLTQPPSVSGAPGQRVTISCTGSSSNIGAGYDVHWYQQLPG_APKLLI",
        "SYELTQPPSVSVSPGQTASITCSGDKLGDKYACWYQ_KPGQSPVLVIYQD",
        "DIVMTQSPDSLAVSLGERATINCKSSQSVLYSSNNKNYLAWYQQ_PGQPP",
        "QVQLQQWGAGLLKPSETLSLTCAVYGGSFSGYYWSWIRQPPGKGL_WIGE",
        "EVQLVQSGAEVKKPGESLKISCKGSGYSFTSYWIG_VRQMPGKGLEWMGI",
        "QITLKESGPTLVKPTQTLTLTCTFSGFSLSTSGVGVGWIRQPPGKAL_WL",
        "QVQLV_SGAEVKKPGASV_VSCKASGYTFTSYGISWVRQ",
        "EVQLVES_GGLV",
        "WG_GTLVTVSS",
        "YYCAR_YYYGMDVWGQGTTVTVSS",
        "YFCQQYGSSPLT_GGGTKVEIK",
        "Q_Q",
        "AAAAAAAA_AAAAAAAA",
        "EVQLVESGGGLVKPGGSLRLSCAASGFTFSSYSMNWVRQAPGKGLEWV__ISSSSSYI",
        "QVTLRESGPALVKPTQTLTLTCTFSGFSLSTSGMCVSWIRQPPGKALEWLA_IDWDDDKYY",
        "DVVMTQSPLSLPVTLGQPASISCRSSQSLVYSDGNTYLNWFQQRPGQSPRRL_YKVS",
    ],
    "english": [
        "She go to school every day.",
        "I has two dogs and a cat.",
        "He don't like the apples.",
        "There going to the beach tomorrow.",
        "The informations are very useful.",
        "Yesterday we goes to the market.",
        "Their is a problem with you're computer.",
        "She is more taller then her brother.",
        "i live in london",
        "Me and him was late for the meeting.",
        "The cat sat on the mat.",
        "I have been their many times.",
        "He did not went home.",
        "A apple a day keeps the doctor away.",
        "Its raining, lets stay inside.",
        "We was happy too see you.",
        "She can sings very well.",
        "This are my friends.",
        "Every students must bring there book.",
        "He has went to Paris last year , I think.",
        "I could of done it better.",
        "The children is playing in the garden.",
        "Naïve café owners don't knows what they wants 🍕.",
        "Antidisestablishmentarianism are a long word.",
    ],
}
