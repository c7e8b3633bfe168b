"""The words of the built-in corpus, as plain text tables.

Nouns have classes, and verbs and adjectives list the noun classes that they accept, so
that the sampled sentences make sense.
"""

# Korean | English [/ irregular plural] | article | counter | classes
# Articles of an indefinite object: "a" countable, "-" uncountable, "s" plural only,
# "the" always definite.
NOUNS = """
사과 | apple | a | 개 | food fruit thing gift
바나나 | banana | a | 개 | food fruit thing
오렌지 | orange | a | 개 | food fruit thing
딸기 | strawberry | a | 개 | food fruit thing
수박 | watermelon | a | 개 | food fruit thing gift
달걀 | egg | a | 개 | food cook thing
샌드위치 | sandwich | a | 개 | food make thing
케이크 | cake | a | 개 | food bake make thing gift
쿠키 | cookie | a | 개 | food bake make thing gift
빵 | bread | - | 조각 | food bake make thing
치즈 | cheese | - | 조각 | food thing
초콜릿 | chocolate | - | 조각 | food thing gift
밥 | rice | - | 그릇 | food cook
국수 | noodles | s | 그릇 | food cook spicy
고기 | meat | - |  | food cook
생선 | fish | - |  | food cook
김치 | kimchi | - |  | food make spicy
커피 | coffee | - | 잔 | drink
차 | tea | - | 잔 | drink
물 | water | - | 병 | drink
우유 | milk | - | 병 | drink
주스 | juice | - | 병 | drink
책 | book | a | 권 | read write thing gift borrow
잡지 | magazine | a | 권 | read thing borrow
소설 | novel | a | 권 | read write thing borrow
신문 | newspaper | a |  | read thing
편지 | letter | a | 통 | read write send
시 | poem | a | 편 | read write
셔츠 | shirt | a | 벌 | wear thing gift
치마 | skirt | a | 벌 | wear thing
코트 | coat | a | 벌 | wear thing
한복 | hanbok | a | 벌 | wear thing
바지 | pants | s |  | wear thing
신발 | shoes | s | 켤레 | shoes thing
양말 | socks | s | 켤레 | shoes thing gift
부츠 | boots | s | 켤레 | shoes thing
가방 | bag | a | 개 | thing gift make lose holder
시계 | watch/watches | a | 개 | thing pretty gift fix lose
우산 | umbrella | a | 개 | thing pretty lose borrow
의자 | chair | a | 개 | thing fix make place
책상 | desk | a | 개 | thing fix make place
침대 | bed | a | 개 | thing make place
상자 | box | a | 개 | open close make holder send
연필 | pencil | a | 개 | thing borrow small
열쇠 | key | a | 개 | lose small
지갑 | wallet | a | 개 | thing pretty gift lose small
안경 | glasses | s |  | thing lose small
카메라 | camera | a | 대 | thing fix borrow
컴퓨터 | computer | a | 대 | thing fix switch fast
자전거 | bicycle | a | 대 | thing fix ride borrow
자동차 | car | a | 대 | fix drive big
트럭 | truck | a | 대 | fix drive big
인형 | doll | a | 개 | thing pretty gift make small
장난감 | toy | a | 개 | thing gift make small
선물 | present | a | 개 | choose send open
그림 | picture | a | 장 | draw show
사진 | photo | a | 장 | show send small shoot
꽃 | flower | a | 송이 | draw grow choose
나무 | tree | a | 그루 | draw grow
접시 | plate | a | 개 | thing pretty wash small
컵 | cup | a | 개 | thing pretty wash small
고양이 | cat | a | 마리 | animal draw
강아지 | puppy | a | 마리 | animal draw
토끼 | rabbit | a | 마리 | animal draw
새 | bird | a | 마리 | animal draw
말 | horse | a | 마리 | animal draw ride
영화 | movie | a | 편 | watch
드라마 | drama | a | 편 | watch
연극 | play | a | 편 | watch
노래 | song | a | 곡 | sing hear
음악 | music | - |  | hear subject
라디오 | radio | the |  | hear switch
뉴스 | news | the |  | hear
한국어 | Korean | - |  | subject
영어 | English | - |  | subject
수학 | math | - |  | subject
역사 | history | - |  | subject
과학 | science | - |  | subject
피아노 | piano | the |  | instrument
기타 | guitar | the |  | instrument
방 | room | the |  | room
부엌 | kitchen | the |  | room
교실 | classroom | the |  | room
사무실 | office | the |  | room
거실 | living room | the |  | room
화장실 | bathroom | the |  | room
문 | door | the |  | open close
창문 | window | the |  | open close
불 | light | the |  | switch
텔레비전 | television | the |  | switch
버스 | bus | the |  | ride wait
기차 | train | the |  | ride wait
택시 | taxi | a |  | ride wait
답 | answer | the |  | know
비밀 | secret | the |  | know
이름 | name | the |  | know
집 | house | a | 채 | build
다리 | bridge | a |  | build
병원 | hospital | a |  | build
"""

# Korean stem [/ irregular class] | English | object classes | object form | places |
# tenses (p present, g progressive, d past, f future; m: takes modals, L: always has a
# place).
# Object forms: "a" indefinite, "the" definite, "gen" generic, "who" a person.
VERBS = """
먹 | eat | food | a | eat | pgdfm
마시 | drink | drink | a | eat | pgdfm
읽 | read | read | a | read | pgdfm
쓰 | write | write | a | read | pgdfm
사 | buy | thing food drink | a | buy | pdfm
팔 | sell | fruit wear shoes | gen | buy | pgdf
만들 | make | make | a | rest | pgdfm
굽/ㅂ | bake | bake | a | cook | pgdfm
요리하 | cook | cook | a | cook | pgdfm
씻 | wash | wash fruit | the | cook | gdfm
입 | wear | wear | a |  | pgdfm
신 | wear | shoes | a |  | pgdfm
보 | watch | watch | a | watch | pgdfm
그리 | draw | draw | a | read | pgdfm
듣/ㄷ | listen to | hear | a | read | pgdfm
부르/르 | sing | sing | a | play | pgdfm
배우 | learn | subject instrument | a | learn | pgdfm
가르치 | teach | subject instrument | a | learn | pgdfm
공부하 | study | subject | a | read | pgdfm
연습하 | practice | instrument | a | learn | pgdfm
고치 | fix | fix | the |  | gdfm
열 | open | open | the |  | gdfm
닫 | close | close | the |  | gdfm
켜 | turn on | switch | the |  | df
끄 | turn off | switch | the |  | dfm
청소하 | clean | room | the |  | pgdfm
자르/르 | cut | fruit bake | the | cook | gdfm
고르/르 | choose | choose gift wear | a | buy | gdfm
찾 | find | lose | the |  | dfm
잃어버리 | lose | lose | the | town | d
빌리 | borrow | borrow | a |  | dfm
그만두 | quit | instrument | the |  | df
타 | ride | ride | a |  | pgdfm
운전하 | drive | drive | a |  | pgdfm
키우 | raise | animal | a | raise | pgdfm
심 | plant | grow | a | garden | gdfm
짓/ㅅ | build | build | a | city | gdfm
알 | know | know | the |  | pd
기억하 | remember | know | the |  | pdfm
잊어버리 | forget | know | the |  | d
좋아하 | like | food drink animal subject wear | gen |  | pd
싫어하 | hate | food drink subject | gen |  | pd
돕/ㅂ | help | who | who | work | pgdfm
만나 | meet | who | who | meet | pdfm
기다리 | wait for | who wait | the | meet | gdfm
사랑하 | love | who | who |  | p
초대하 | invite | who | who |  | dfm
찍 | take | shoot | a | town | pgdfm
"""

INTRANSITIVE = """
자 | sleep | rest | pgdfm
쉬 | rest | rest | pgdfm
일하 | work | work | pgdfm
살 | live | city | pdfmL
놀 | play | play | pgdfm
수영하 | swim | swim | pgdfm
걷/ㄷ | walk | walk | pgdfm
뛰 | run | walk | pgdfm
울 | cry | rest | gd
웃 | laugh | play | gd
춤추 | dance | play | pgdfm
운동하 | exercise | walk | pgdfm
여행하 | travel | city | pgdfmL
기다리 | wait | meet | gdfm
"""
GIVE = """
주 | give | gift choose | to
보내 | send | send | to
보여 주 | show | show | to
팔 | sell | thing | to
읽어 주 | read | read | to
"""

# Korean | location | destination | activities (the places of the verb tables; "in": not
# reached by a vehicle)
PLACES = """
집 | at home | home | eat read rest cook raise
학교 | at school | to school | eat read learn work meet
도서관 | at the library | to the library | read work meet
교실 | in the classroom | to the classroom | read learn in
식당 | at the restaurant | to the restaurant | eat work meet
카페 | at the cafe | to the cafe | eat read work meet
공원 | in the park | to the park | eat read walk play meet town
시장 | at the market | to the market | buy eat town
가게 | at the store | to the store | buy work town
백화점 | at the department store | to the department store | buy meet work
부엌 | in the kitchen | to the kitchen | eat cook in
방 | in the room | to the room | read rest in
거실 | in the living room | to the living room | rest watch eat in
극장 | at the theater | to the theater | watch meet work
병원 | at the hospital | to the hospital | work
은행 | at the bank | to the bank | work
사무실 | in the office | to the office | work read in
역 | at the station | to the station | meet town work
공항 | at the airport | to the airport | meet town work
해변 | on the beach | to the beach | walk play swim town
수영장 | in the pool | to the pool | swim
강 | in the river | to the river | swim in
정원 | in the garden | to the garden | garden play read raise in
운동장 | on the playground | to the playground | walk play
서울 | in Seoul | to Seoul | city buy work
부산 | in Busan | to Busan | city buy swim
제주도 | on Jeju Island | to Jeju Island | city walk
시골 | in the countryside | to the countryside | city
"""

# Korean stem [/ class] | English | -er form or "more" | noun classes
ADJECTIVES = """
크 | big | bigger | thing animal big grow
작 | small | smaller | thing animal small
비싸 | expensive | more | thing wear shoes big fix
싸 | cheap | cheaper | thing wear shoes
무겁/ㅂ | heavy | heavier | fix place holder
가볍/ㅂ | light | lighter | shoes holder fix
예쁘 | pretty | prettier | wear pretty holder draw
빨갛/ㅎ | red |  | wear shoes holder pretty big
파랗/ㅎ | blue |  | wear shoes holder pretty big
노랗/ㅎ | yellow |  | wear shoes holder pretty big
하얗/ㅎ | white |  | wear shoes animal
길 | long | longer | write watch
짧 | short | shorter | write watch sing
맛있 | delicious | more | food
맵/ㅂ | spicy | spicier | spicy
달 | sweet | sweeter | fruit bake
뜨겁/ㅂ | hot |  | drink spicy
차갑/ㅂ | cold |  | drink
재미있 | interesting | more | write watch
어렵/ㅂ | difficult | more | subject write
쉽/ㅂ | easy | easier | write
빠르/르 | fast | faster | drive ride fast
느리 | slow | slower | drive fast
깨끗하 | clean | cleaner | room wear wash
더럽/ㅂ | dirty | dirtier | room shoes wash
조용하 | quiet | quieter | room
귀엽/ㅂ | cute | cuter | animal
"""
FEELINGS = """
바쁘 | busy
행복하 | happy
슬프 | sad
피곤하 | tired
아프 | sick
배고프 | hungry
친절하 | kind
똑똑하 | smart
"""
ROLES = """
학생 | student
선생님 | teacher
의사 | doctor
간호사 | nurse
요리사 | chef
가수 | singer
기자 | reporter
화가 | painter
농부 | farmer
작가 | writer
남자 | man/men
여자 | woman/women
아이 | child/children
"""
NAMES = """
민수 | Minsu | he
지훈 | Jihun | he
영호 | Yeongho | he
동현 | Donghyeon | he
유나 | Yuna | she
수진 | Sujin | she
미라 | Mira | she
서연 | Seoyeon | she
"""
KIN = """
어머니 | mother | she
아버지 | father | he
할머니 | grandmother | she
할아버지 | grandfather | he
남동생 | younger brother | he
여동생 | younger sister | she
삼촌 | uncle | he
이모 | aunt | she
"""
NUMERALS = """
한 | one
두 | two
세 | three
네 | four
다섯 | five
여섯 | six
일곱 | seven
여덟 | eight
아홉 | nine
열 | ten
"""
# Korean | English measure word ("two cups of coffee") | plural
COUNTERS = """
잔 | cup | cups
병 | bottle | bottles
그릇 | bowl | bowls
조각 | piece | pieces
켤레 | pair | pairs
"""
# tense | Korean | English; D and F: years and months ago or ahead
TIMES = """
p | 매일 | every day
p | 매주 | every week
p | 아침마다 | every morning
p | 주말마다 | every weekend
p | 월요일마다 | every Monday
p | 저녁마다 | every evening
g | 지금 | now
d | 어제 | yesterday
d | 어젯밤에 | last night
d | 지난주에 | last week
d | 오늘 아침에 | this morning
d | 지난 주말에 | last weekend
f | 내일 | tomorrow
f | 오늘 밤에 | tonight
f | 다음 주에 | next week
f | 내일 아침에 | tomorrow morning
f | 이번 주말에 | this weekend
D | 작년에 | last year
D | 지난달에 | last month
F | 내년에 | next year
F | 다음 달에 | next month
"""
OFTEN = """
자주 | often
항상 | always
가끔 | sometimes
보통 | usually
"""
WEEKDAYS = """
월요일 | Monday
수요일 | Wednesday
금요일 | Friday
토요일 | Saturday
일요일 | Sunday
"""
VEHICLES = """
버스 | by bus
지하철 | by subway
기차 | by train
자전거 | by bicycle
자동차 | by car
택시 | by taxi
"""
# verb | Korean tool | English; `eat` only with dishes.
TOOLS = """
write | 연필 | with a pencil
write | 펜 | with a pen
draw | 연필 | with a pencil
draw | 붓 | with a brush
cut | 칼 | with a knife
eat | 젓가락 | with chopsticks
eat | 숟가락 | with a spoon
"""
WHERE = """
위 | on | place
밑 | under | place
옆 | next to | place holder
안 | in | holder
"""
