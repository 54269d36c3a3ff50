package definition

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// lookAlike returns a normal form of an id: two ids that differ only in how they encode accents have the same form. An accented letter is
// either one character, such as U+00E9, or a letter and a combining mark, such as e and U+0301. lookAlike decomposes accented letters and
// Hangul syllables, like Unicode's normal form NFD, and sorts the marks of a letter by their code points. Other letters that are not in the
// table `marked` stay as they are.
func lookAlike(id string) string {
	if isASCII(id) {
		return id
	}
	var letters []rune
	for _, r := range id {
		letters = takeApart(letters, r)
	}
	for i := 0; i < len(letters); i++ {
		first := i
		for i < len(letters) && unicode.Is(unicode.Mn, letters[i]) {
			i++
		}
		slices.Sort(letters[first:i])
	}
	return string(letters)
}

// takeApart appends the parts of a letter, or the letter itself if it has no parts.
func takeApart(to []rune, r rune) []rune {
	const syllables, initials, vowels, finals = 0xAC00, 0x1100, 0x1161, 0x11A7 // the bases of the Hangul blocks: see the Unicode Standard, section 3.12
	const vowelCount, finalCount = 21, 28
	if parts, ok := composed[r]; ok {
		return append(takeApart(to, parts.base), parts.mark)
	}
	if s := r - syllables; 0 <= s && s < 19*vowelCount*finalCount {
		to = append(to, initials+s/(vowelCount*finalCount), vowels+s/finalCount%vowelCount)
		if s%finalCount > 0 {
			to = append(to, finals+s%finalCount)
		}
		return to
	}
	return append(to, r)
}

type composition struct{ base, mark rune }

// composed maps an accented letter to its parts.
var composed = func() map[rune]composition {
	of := map[rune]composition{}
	for mark, pairs := range marked {
		for len(pairs) > 0 {
			base, n := utf8.DecodeRuneInString(pairs)
			letter, m := utf8.DecodeRuneInString(pairs[n:])
			of[letter] = composition{base, mark}
			pairs = pairs[n+m:]
		}
	}
	return of
}()

// marked maps each combining mark to pairs of letters: a letter without the mark, and then the same letter with the mark. It covers Latin,
// Greek, Cyrillic and Kana. Source: the canonical decompositions of the Unicode Character Database, 15.0.
var marked = map[rune]string{
	0x0300: "AÀEÈIÌOÒUÙaàeèiìoòuùÜǛüǜNǸnǹЕЀИЍеѐиѝÂẦâầĂẰăằÊỀêềÔỒôồƠỜơờƯỪưừYỲyỳ",
	0x0301: "AÁEÉIÍOÓUÚYÝaáeéiíoóuúyýCĆcćLĹlĺNŃnńRŔrŕSŚsśZŹzźÜǗüǘGǴgǵÅǺåǻÆǼæǽØǾøǿ¨΅ΑΆΕΈΗΉΙΊΟΌΥΎΩΏϊΐαάεέηήιίϋΰοόυύωώϒϓГЃКЌгѓкќÂẤâấĂẮăắÊẾêếÔỐôốƠỚơớƯỨưứ",
	0x0302: "AÂEÊIÎOÔUÛaâeêiîoôuûCĈcĉGĜgĝHĤhĥJĴjĵSŜsŝWŴwŵYŶyŷẠẬạậẸỆẹệỌỘọộ",
	0x0303: "AÃNÑOÕaãnñoõIĨiĩUŨuũÂẪâẫĂẴăẵEẼeẽÊỄêễÔỖôỗƠỠơỡƯỮưữYỸyỹ",
	0x0304: "AĀaāEĒeēIĪiīOŌoōUŪuūÜǕüǖÄǞäǟȦǠȧǡÆǢæǣǪǬǫǭÖȪöȫÕȬõȭȮȰȯȱYȲyȳИӢиӣУӮуӯ",
	0x0306: "AĂaăEĔeĕGĞgğIĬiĭOŎoŏUŬuŭУЎИЙийуўЖӁжӂАӐаӑЕӖеӗẠẶạặ",
	0x0307: "CĊcċEĖeėGĠgġIİZŻzżAȦaȧOȮoȯ",
	0x0308: "AÄEËIÏOÖUÜaäeëiïoöuüyÿYŸΙΪΥΫιϊυϋϒϔЕЁІЇеёіїАӒаӓӘӚәӛЖӜжӝЗӞзӟИӤиӥОӦоӧӨӪөӫЭӬэӭУӰуӱЧӴчӵЫӸыӹ",
	0x0309: "AẢaảÂẨâẩĂẲăẳEẺeẻÊỂêểIỈiỉOỎoỏÔỔôổƠỞơởUỦuủƯỬưửYỶyỷ",
	0x030A: "AÅaåUŮuů",
	0x030B: "OŐoőUŰuűУӲуӳ",
	0x030C: "CČcčDĎdďEĚeěLĽlľNŇnňRŘrřSŠsšTŤtťZŽzžAǍaǎIǏiǐOǑoǒUǓuǔÜǙüǚGǦgǧKǨkǩƷǮʒǯjǰHȞhȟ",
	0x030F: "AȀaȁEȄeȅIȈiȉOȌoȍRȐrȑUȔuȕѴѶѵѷ",
	0x0311: "AȂaȃEȆeȇIȊiȋOȎoȏRȒrȓUȖuȗ",
	0x031B: "OƠoơUƯuư",
	0x0323: "AẠaạEẸeẹIỊiịOỌoọƠỢơợUỤuụƯỰưựYỴyỵ",
	0x0326: "SȘsșTȚtț",
	0x0327: "CÇcçGĢgģKĶkķLĻlļNŅnņRŖrŗSŞsşTŢtţEȨeȩ",
	0x0328: "AĄaąEĘeęIĮiįUŲuųOǪoǫ",
	0x3099: "かがきぎくぐけげこごさざしじすずせぜそぞただちぢつづてでとどはばひびふぶへべほぼうゔゝゞカガキギクグケゲコゴサザシジスズセゼソゾタダチヂツヅテデトドハバヒビフブヘベホボウヴワヷヰヸヱヹヲヺヽヾ",
	0x309A: "はぱひぴふぷへぺほぽハパヒピフプヘペホポ",
}

// The function `alike` reports whether two ids are different but look the same.
func alike(a, b string) bool { return a != b && lookAlike(a) == lookAlike(b) }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
