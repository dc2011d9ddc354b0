package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Bandwidth measures how fast data comes from the peer, in bytes per second: it reads a sample that the peer keeps for
// that, and counts the time from the request to the last byte. Besides the errors of this package it returns NotFound, as
// apimachinery's errors package tells, when the peer keeps none.
func (l *Link) Bandwidth(ctx context.Context) (int64, error) {
	start := l.links.config.Clock.Now()
	answer, err := l.getConfigMap(ctx, v1alpha1.BandwidthSample)
	if err != nil {
		return 0, err
	}
	took := max(l.links.config.Clock.Since(start), time.Microsecond)
	if len(answer) < v1alpha1.BandwidthSampleSize {
		return 0, fmt.Errorf("%w: ConfigMap %s of the peer has %d bytes, too few to measure by", ErrMalformed, v1alpha1.BandwidthSample, len(answer))
	}
	return int64(float64(len(answer)) / took.Seconds()), nil
}
