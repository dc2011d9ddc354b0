package exchange

import (
	"os"
	"regexp"
	"testing"
)

// The settings of prices that the documentation shows are ones.
func TestPricesOfTheDocumentationAreTaken(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/set-prices.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`kubectl create configmap hanse-prices(.*\\\n)*.*\n`).FindAllString(string(page), -1)
	if len(commands) == 0 {
		t.Fatal("no command that sets prices is shown")
	}
	for _, command := range commands {
		setting := map[string]string{}
		for _, literal := range regexp.MustCompile(`--from-literal=([^= ]+)=(\S+)`).FindAllStringSubmatch(command, -1) {
			setting[literal[1]] = literal[2]
		}
		prices, err := ParsePrices(setting)
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		if len(setting) < 2 || prices == nil || len(prices.PerHour) != len(setting)-1 {
			t.Errorf("%s: prices are %v", command, prices)
		}
	}
}
