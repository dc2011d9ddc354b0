package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
)

// The table shows what was measured of the link to each provider, and not only what these say.
func TestTableShowsMeasurements(t *testing.T) {
	market(t)
	eventually(t, "the table shows latency and bandwidth of both providers", func(ctx context.Context) error {
		out, err := lubeck.Hanse(ctx, "table", "-o", "json")
		if err != nil {
			return err
		}
		var table struct {
			Rows []struct {
				RoundTripTime string          `json:"roundTripTime"`
				Bandwidth     json.RawMessage `json:"bandwidth"`
			} `json:"rows"`
		}
		if err := json.Unmarshal([]byte(out), &table); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		measured := 0
		for _, row := range table.Rows {
			if row.RoundTripTime != "" && len(row.Bandwidth) > 0 {
				measured++
			}
		}
		if measured < 2 {
			return fmt.Errorf("%d rows have both: %s", measured, out)
		}
		return nil
	})
}
