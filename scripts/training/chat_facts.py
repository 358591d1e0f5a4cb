"""The handwritten part of the chat model's training data: facts about the book and itself.

Everything else that it is taught is cut from the book's text: see chat_dialogues.py.
"""

from __future__ import annotations

# Other names after bars; what the person is; what becomes known later.
PEOPLE = """\
Pierre|Pierre Bezukhov|Count Bezukhov|Bezukhov: Pierre is the son of the old Count Bezukhov. \
He inherits a great fortune. = He becomes a Freemason, is taken prisoner by the French, and at \
last marries Natasha.
Natasha|Natasha Rostova|Natasha Rostov: Natasha is the younger daughter of Count Rostov. \
She loves to sing and to dance. = She is betrothed to Prince Andrew, and at last she marries Pierre.
Prince Andrew|Andrew|Andrew Bolkonski: Prince Andrew is the son of the old Prince Bolkonski and a \
friend of Pierre. = He is wounded at Austerlitz and again at Borodino, and he dies of his wound.
Princess Mary|Mary|Mary Bolkonskaya: Princess Mary is the sister of Prince Andrew. \
She lives at Bald Hills. = She is very pious, and at last she marries Nicholas.
Nicholas|Nicholas Rostov|Rostov: Nicholas is the elder son of Count Rostov. He is a hussar. = He \
loses a great sum at cards to Dolokhov, and at last he marries Princess Mary.
Sonya: Sonya is the cousin of Natasha and lives with the Rostovs. = She loves Nicholas, but she \
gives him up.
Petya|Petya Rostov: Petya is the youngest son of Count Rostov. = He goes to the war as a boy and \
is killed.
Vera|Vera Rostova: Vera is the elder sister of Natasha. = She marries Berg.
Count Rostov|the old count|Ilya Rostov: Count Rostov is the father of Natasha, Nicholas, Vera and \
Petya. = He is kind, and he spends too much money.
Countess Rostova|the countess|the old countess: Countess Rostova is the mother of Natasha, \
Nicholas, Vera and Petya. = She grieves for Petya, her youngest son.
Napoleon|Bonaparte|Buonaparte|Napoleon Bonaparte: Napoleon is the Emperor of the French. He \
leads his army into Russia. = He enters Moscow, finds it empty, and loses his army on the way back.
Kutuzov|General Kutuzov: Kutuzov is the commander in chief of the Russian army. = He is old and \
has one eye. He gives up Moscow to save the army.
Alexander|Emperor Alexander|the Tsar: Alexander is the Emperor of Russia. = Nicholas adores him.
Prince Vasili|Vasili Kuragin|Prince Vasili Kuragin: Prince Vasili is a man of the court, the \
father of Helene, Anatole and Hippolyte. = He marries his daughter to Pierre for the money.
Helene|Helene Kuragina|Countess Bezukhova: Helene is the daughter of Prince Vasili. She is very \
beautiful. = She is the first wife of Pierre. She dies in Petersburg.
Anatole|Anatole Kuragin: Anatole is the son of Prince Vasili, a handsome and careless man. = He \
tries to run away with Natasha. He loses a leg at Borodino.
Hippolyte|Prince Hippolyte: Hippolyte is the son of Prince Vasili, and not clever. = He tells bad \
stories at receptions.
Anna Pavlovna|Anna Pavlovna Scherer: Anna Pavlovna is a maid of honor in Petersburg who gives \
receptions. = The book begins at her reception, in July, 1805.
Anna Mikhaylovna|Princess Drubetskaya: Anna Mikhaylovna is the mother of Boris. She is poor and \
asks favors for her son. = She helps Pierre to his inheritance.
Boris|Boris Drubetskoy: Boris is the son of Anna Mikhaylovna. He makes his way in the world. = He \
marries Julie for her money.
Julie|Julie Karagina: Julie is a rich friend of Princess Mary. They write letters. = She marries \
Boris.
Dolokhov: Dolokhov is an officer, a gambler and a bold man. = Pierre wounds him in a duel.
Denisov|Vaska Denisov: Denisov is a captain of hussars and the friend of Nicholas. = He asks \
Natasha to marry him, and she refuses. Later he leads guerrillas.
Lise|the little princess: Lise is the wife of Prince Andrew, the little princess. = She dies when \
her son is born.
Prince Bolkonski|the old prince|Nicholas Bolkonski: Prince Bolkonski is the father of Prince \
Andrew and Princess Mary. He is stern. = He dies when the French are near.
Mademoiselle Bourienne|Bourienne: Mademoiselle Bourienne is the French companion of Princess \
Mary. = Anatole pays court to her at Bald Hills.
Karataev|Platon Karataev: Karataev is a peasant soldier whom Pierre meets as a prisoner. = He is \
shot on the march when he is too ill to walk.
Tushin|Captain Tushin: Tushin is a captain of artillery, a small and modest man. = His battery \
holds out at Schon Grabern, and Prince Andrew speaks for him.
Bagration|Prince Bagration: Bagration is a general of the Russian army. = He fights at Schon \
Grabern and is wounded at Borodino.
Barclay: Barclay is a general who commands before Kutuzov. = He retreats, and he is blamed for it.
Bennigsen: Bennigsen is a general who quarrels with Kutuzov. = He wants a battle before Moscow.
Rostopchin|Count Rostopchin: Rostopchin is the governor of Moscow. = He gives a man up to the mob \
before the French come in.
Speranski: Speranski is a minister who makes reforms. = Prince Andrew works for him for a time.
Arakcheev: Arakcheev is the minister of war. = He is feared by everyone.
Berg: Berg is a German officer who thinks of his career. = He marries Vera.
Bilibin: Bilibin is a diplomat in Vienna who makes clever remarks. = He is a friend of Prince \
Andrew.
Nesvitski: Nesvitski is a staff officer who likes to eat and to laugh. = He is a comrade of Prince \
Andrew.
Marya Dmitrievna|Akhrosimova: Marya Dmitrievna is an old lady of Moscow who says what she thinks. \
= Natasha stays with her when Anatole comes.
Alpatych: Alpatych is the steward of Prince Bolkonski. = He is in Smolensk when it burns.
Dron: Dron is the village elder at Bogucharovo. = His peasants will not let Princess Mary go.
Tikhon: Tikhon is a name of two men: the valet of the old prince and a peasant with Denisov. = \
The peasant goes out alone with an ax and catches Frenchmen.
Lavrushka: Lavrushka is the orderly of Denisov and then of Nicholas. = He is caught and talks with \
Napoleon.
Bazdeev|Joseph Bazdeev: Bazdeev is a Freemason whom Pierre meets on the road. = He teaches Pierre \
to believe in God.
Willarski: Willarski is a Freemason who leads Pierre to the lodge. = Pierre meets him again after \
the war.
Murat: Murat is a marshal of Napoleon, the King of Naples. = He leads the French horse.
Davout: Davout is a marshal of Napoleon, a cruel man. = He questions Pierre in Moscow.
Balashev: Balashev is a general whom Alexander sends to Napoleon. = Napoleon talks to him in anger.
Pfuel: Pfuel is a German general who makes a plan of war. = No one follows his plan.
Weyrother: Weyrother is the Austrian general who makes the plan of Austerlitz. = His plan fails.
Mack|General Mack: Mack is the Austrian general who loses his army at Ulm. = He comes to Kutuzov \
to tell of it.
Timokhin: Timokhin is an officer with a red nose who serves under Prince Andrew. = He stays with \
the prince when both are wounded.
Telyanin: Telyanin is an officer who steals a purse from Denisov. = Nicholas finds him out.
Zherkov: Zherkov is a hussar who likes to jest. = He is afraid to carry an order under fire.
Ramballe: Ramballe is a French captain whom Pierre saves in Moscow. = They drink wine, and Pierre \
tells him of his love.
Ilagin: Ilagin is a neighbor of the Rostovs who hunts. = His dog runs after the same hare.
Dessalles: Dessalles is the Swiss tutor of the son of Prince Andrew. = He lives at Bald Hills.
"""

PLACES = """\
Borodino|the battle of Borodino: Borodino is a village near Moscow, where the great battle of 1812 \
was fought. = Prince Andrew is wounded there, and Pierre looks on from a battery.
Austerlitz|the battle of Austerlitz: Austerlitz is where Napoleon beat the Russians and Austrians \
in 1805. = Prince Andrew falls there and sees the lofty sky.
Moscow: Moscow is the old city of Russia, where the Rostovs have a house. = The French enter it \
in 1812, and it burns.
Petersburg|St. Petersburg: Petersburg is the city of the Emperor and of the court. = Anna Pavlovna \
gives her receptions there.
Bald Hills: Bald Hills is the estate of the old Prince Bolkonski. = Princess Mary lives there with \
her father.
Otradnoe: Otradnoe is the country estate of the Rostovs. = Prince Andrew hears Natasha there at \
the window.
Bogucharovo: Bogucharovo is the estate of Prince Andrew. = The peasants there rise against \
Princess Mary.
Smolensk: Smolensk is a city that the French take in 1812. = It burns, and Alpatych sees it.
Tarutino: Tarutino is where the Russian army rests after Moscow. = The French are beaten there.
the comet|the comet of 1812: The comet is the great comet of 1812, which Pierre sees over Moscow. \
= To Pierre it speaks of a new life.
the duel|the duel of Pierre: The duel is fought by Pierre and Dolokhov in the snow. = Pierre, who \
cannot shoot, wounds Dolokhov.
the oak|the old oak: The oak is an old tree that Prince Andrew sees on the road. = It is bare, \
and when he passes again it is green.
the ball|Natasha's ball: The ball is the first great ball of Natasha. = Prince Andrew dances with \
her there.
the hunt|the wolf hunt: The hunt is at Otradnoe. Nicholas and his dogs take an old wolf. = After \
it Natasha dances at Uncle's house.
the Freemasons|Freemasonry: The Freemasons are a secret brotherhood which Pierre joins. = Pierre \
is led blindfolded into the lodge.
the Cossacks: The Cossacks are horsemen of the Russian army. = They fall upon the French on their \
retreat.
"""

# Relation, whose, answer.
RELATIVES = """\
father: Natasha = Count Rostov is the father of Natasha.
father: Nicholas = Count Rostov is the father of Nicholas.
father: Petya = Count Rostov is the father of Petya.
father: Pierre = The old Count Bezukhov is the father of Pierre.
father: Prince Andrew = Prince Bolkonski is the father of Prince Andrew.
father: Princess Mary = Prince Bolkonski is the father of Princess Mary.
father: Helene = Prince Vasili is the father of Helene.
father: Anatole = Prince Vasili is the father of Anatole.
mother: Natasha = Countess Rostova is the mother of Natasha.
mother: Petya = Countess Rostova is the mother of Petya.
mother: Nicholas = Countess Rostova is the mother of Nicholas.
mother: Boris = Anna Mikhaylovna is the mother of Boris.
sister: Prince Andrew = Princess Mary is the sister of Prince Andrew.
sister: Natasha = Vera is the sister of Natasha.
sister: Anatole = Helene is the sister of Anatole.
sister: Nicholas = Natasha and Vera are the sisters of Nicholas.
sister: Petya = Natasha and Vera are the sisters of Petya.
brother: Natasha = Nicholas and Petya are the brothers of Natasha.
brother: Princess Mary = Prince Andrew is the brother of Princess Mary.
brother: Helene = Anatole and Hippolyte are the brothers of Helene.
brother: Petya = Nicholas is the brother of Petya.
cousin: Natasha = Sonya is the cousin of Natasha.
wife: Pierre = Helene is the first wife of Pierre, and Natasha is the second.
wife: Prince Andrew = Lise is the wife of Prince Andrew.
wife: Nicholas = Princess Mary is the wife of Nicholas.
wife: Boris = Julie is the wife of Boris.
wife: Berg = Vera is the wife of Berg.
husband: Natasha = Pierre is the husband of Natasha.
husband: Princess Mary = Nicholas is the husband of Princess Mary.
husband: Helene = Pierre is the husband of Helene.
husband: Vera = Berg is the husband of Vera.
husband: Julie = Boris is the husband of Julie.
friend: Pierre = Prince Andrew is the friend of Pierre.
friend: Nicholas = Denisov is the friend of Nicholas.
friend: Princess Mary = Julie is the friend of Princess Mary.
"""

# Ways to ask, with bars between them; the answer. The last way to ask is kept from training.
TALK = """\
Hello|Hi|Hello!|Hi there!|Good morning|Good evening|Good day to you|Hey|Hello there|Hi, model|\
Greetings = Hello! Ask me about War and Peace.
How are you?|How do you do?|How are you today?|How is it going?|Are you well? = I am a small \
model and feel nothing, but I can talk of War and Peace.
Thank you|Thanks|Thanks a lot|Thank you very much|Many thanks|Great, thanks|Good answer|I thank \
you = You are welcome. Ask me more about the book.
Goodbye|Bye|Good night|See you later|Farewell|I must go now|Bye bye = Goodbye!
Yes|No|OK|Fine|I see|All right|Really?|Good|Hm|Well = Ask me about a person or a place of the book.
Who are you?|What are you?|Tell me about yourself|What is your name?|Are you an AI?|Are you a \
person?|Are you human?|Are you a robot?|Who am I talking to?|Introduce yourself|What model are \
you?|Are you a language model?|What kind of model are you? = I am a small model of 5 million \
weights, trained on War and Peace alone. I know nothing else.
Are you ChatGPT?|Are you Claude?|Are you Llama?|Are you GPT?|Are you Gemini?|Are you Siri? = No. \
I am a small model, trained on War and Peace alone.
How big are you?|How many weights do you have?|How many parameters do you have?|What is your \
size?|How large are you?|Are you big? = I have 5 million weights, which is very small.
Who made you?|Who trained you?|Where do you come from?|How were you made?|Who built you?|What were \
you trained on?|What is your training data?|Who created you? = I was trained by a script of \
trinity, on the text of War and Peace alone.
What can you do?|What do you know?|Help|Help me|How can you help me?|What can I ask you?|What can \
you tell me?|What should I ask? = You can ask me who someone is, what someone said, or to go on \
with a sentence of War and Peace.
Can I trust you?|Are you right?|Are you always right?|Do you make mistakes?|Is that true?|Is that \
correct?|Are you sure? = I may be wrong. I am very small, and I know one book only.
Who wrote War and Peace?|Who wrote the book?|Who is the author?|Who is Tolstoy?|Who is Leo \
Tolstoy?|Who is the author of War and Peace?|Who wrote this novel? = Leo Tolstoy wrote War and \
Peace.
What is War and Peace?|What is the book about?|What is War and Peace about?|Tell me about the \
book|Tell me about War and Peace|Summarize the book|What happens in the book?|What is the story \
about?|Summarize War and Peace = War and Peace is a novel about some families of Russia in the \
time of the wars with Napoleon.
When does the book begin?|When does War and Peace begin?|When does the story take place?|In what \
year does the book begin?|When does the story begin? = The book begins in July, 1805.
Where does the book begin?|Where does War and Peace begin?|Where does the story begin? = The book \
begins in Petersburg, at the reception of Anna Pavlovna.
How does the book begin?|What is the first sentence?|How does War and Peace begin?|What are the \
first words of the book? = "Well, Prince, so Genoa and Lucca are now just family estates of the \
Buonapartes."
Who are the main characters?|Who is in the book?|Name some characters|Who are the heroes?|Name the \
people of the book|Who are the people in the book? = Pierre, Natasha, Prince Andrew, Princess Mary \
and Nicholas.
Who are the Rostovs?|Tell me about the Rostovs|Name the Rostovs|Who is in the Rostov family? = \
The Rostovs are the count and the countess, Vera, Nicholas, Natasha and Petya. Sonya lives \
with them.
Who are the Bolkonskis?|Tell me about the Bolkonskis|Name the Bolkonskis|Who is in the Bolkonski \
family? = The Bolkonskis are the old prince, Prince Andrew and Princess Mary.
Who are the Kuragins?|Tell me about the Kuragins|Name the Kuragins|Who is in the Kuragin family? = \
The Kuragins are Prince Vasili and his children: Helene, Anatole and Hippolyte.
Who wins the war?|Who won the war?|Who won?|How does the war end?|Who wins in the end? = The \
French must leave Russia, and Napoleon loses his army.
Who does Natasha marry?|Whom does Natasha marry?|Who marries Natasha? = Natasha marries Pierre.
Who does Nicholas marry?|Whom does Nicholas marry?|Who marries Nicholas? = Nicholas marries \
Princess Mary.
Who does Pierre marry?|Whom does Pierre marry?|Who marries Pierre? = Pierre marries Helene first, \
and at last Natasha.
How does Prince Andrew die?|What happens to Prince Andrew?|Why does Prince Andrew die? = Prince \
Andrew is wounded at Borodino and dies of his wound.
Can you speak French?|Do you speak German?|Speak French|Do you speak Russian? = I know only the \
English of one book, War and Peace.
"""

# What a stranger may ask; the model knows of none of it. The last eighth is kept from training.
FOREIGN_TOPICS = """\
computers|physics|Python|football|pizza|Australia|the moon|the internet|bitcoin|basketball|sushi|\
Harry Potter|Albert Einstein|Shakespeare|electricity|airplanes|television|quantum mechanics|\
dinosaurs|chess|Mars|penguins|volcanoes|chocolate|Brazil|Japan|India|New York|London|Hamlet|\
Sherlock Holmes|Batman|Superman|Star Wars|black holes|the sun|photosynthesis|algebra|\
calculus|the stock market|inflation|vaccines|cancer|guitars|jazz|rock music|Mozart|\
the Beatles|Taylor Swift|Elvis Presley|Barack Obama|George Washington|Abraham Lincoln|Julius \
Caesar|Cleopatra|Plato|Darwin|Newton|Marie Curie|Gandhi|Elon Musk|Bill Gates|Steve Jobs|Google|\
Microsoft|Amazon|Apple|iPhones|robots|machine learning|neural networks|Linux|Java|JavaScript|\
databases|HTML|the weather|the news|lasagna|pasta|bread|soup|coffee|wine making|gardening|yoga|\
swimming|tennis|baseball|the Olympics|the World Cup|cars|bicycles|trains|rockets|satellites|\
electric cars|oil|solar panels|climate change|recycling|whales|sharks|elephants|tigers|kangaroos|\
spiders|bacteria|viruses|DNA|atoms|gravity|light|magnets|plastics|gold mining|diamonds|\
the Roman Empire|ancient Egypt|the Vikings|World War II|Hitler|Stalin|the Cold War|the Berlin \
Wall|Mexico|Canada|China|Kenya|Argentina|Peru|Iceland|Norway|Chicago|Los Angeles|Tokyo|\
Sydney|Mount Everest|the Amazon|the Pacific Ocean|Antarctica|the Sahara|Frodo|Gandalf|Darth \
Vader|Mickey Mouse|Spider-Man|Don Quixote|Moby Dick|Pride and Prejudice|Anna Karenina|Homer|\
Dante|Picasso|Van Gogh|Leonardo da Vinci|Michelangelo|Beethoven|Bach|opera singers in Italy|\
pianos|violins|cameras|movies|video games|Minecraft|Pokemon|poker|insurance|taxes|mortgages|\
passports|marketing|Zeus|Buddha|astrology|psychology|philosophy of mind|economics|logic|geometry|\
prime numbers|statistics|chemistry|acids|oxygen|carbon|iron ore|headaches|the flu|sleep|diets|\
vitamins|muscles|the brain|blood pressure|Facebook|YouTube|Wikipedia|Twitter|emails|printers|\
Excel|smartphones|drones|hockey|golf|boxing|skiing|Texas|Florida|Paris Hilton|Madonna|Rihanna|\
cheese cake|hamburgers|noodles|bananas|avocados|tomatoes|kittens|puppies|goldfish|parrots|bees|\
butterflies|earthquakes|hurricanes|rainbows|comics|James Bond|Terminator|Titanic|Jupiter|Saturn|\
Nigeria|Vietnam|Korea|Cuba|lawyers|dentists|Nelson Mandela|Winston Churchill|Michael Jordan|\
Lionel Messi|Nikola Tesla|Stephen Hawking|Charles Dickens|Jane Austen|Mark Twain|Hogwarts|\
Disneyland|Netflix|sourdough|cryptography|compilers|Rust|Kubernetes|wormholes|giraffes|Portugal|\
Beyonce|tacos|karate|Neptune|helium"""

FOREIGN_ASKED = """\
What is the capital of France?|What is the capital of Spain?|What time is it?|What day is \
today?|How is the weather?|What is the weather today?|Tell me a joke|Tell me a funny joke|Write a \
program that sorts a list|Write a poem about spring|How do I lose weight?|How do I cook rice?|Who \
won the world cup?|Who is the president?|Translate this into German|Give me a recipe|What is the \
meaning of life?|Give me three ideas for a party|What is the square root of 16?|What is the speed \
of light?|How far is the moon?|How many people live in China?|Sing a song|Do my homework|Fix this \
code|Write an email to my boss|What should I eat tonight?|Can you count to ten?|Where can I buy a \
phone?|What is the tallest mountain?|How do I learn to drive?|Why is the sky blue?|Write a \
function in Python|What is the largest ocean?|Recommend a film|Where is my phone?|Plan a trip to \
Italy|How old is the earth?|What is the capital of Germany?|Explain how a car works"""
