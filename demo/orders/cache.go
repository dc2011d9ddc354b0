// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// cache is a server that speaks the protocol of Redis.
func cache(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cache", flag.ContinueOnError)
	listen := flags.String("listen", ":6379", "where to listen")
	file := flags.String("credentials", "/etc/orders/secret/credentials", "who may log in")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	users := &users{server: server, file: credentialFile(*file)}
	if err := users.follow(); err != nil {
		return err
	}
	if err := server.StartAddr(*listen); err != nil {
		return err
	}
	defer server.Close()
	for {
		select {
		case <-ctx.Done():
			time.Sleep(drainTime) // clients that still take the pod for an endpoint are served
			return nil
		case <-time.After(time.Second):
			if err := users.follow(); err != nil {
				slog.Error("Reading credentials", "error", err)
			}
		}
	}
}

// users are those of the server, as the file names them.
type users struct {
	server *miniredis.Miniredis
	file   credentialFile
	known  []credential
}

func (u *users) follow() error {
	now, err := u.file.read()
	if err != nil {
		return err
	}
	for _, c := range u.known {
		u.server.RequireUserAuth(c.user, "")
	}
	for _, c := range now {
		u.server.RequireUserAuth(c.user, c.password)
	}
	u.known = now
	return nil
}

// openCache is the client of the cache. It gives up soon: what is not in the cache is in the database.
func openCache(address string, file credentialFile) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, DisableIdentity: true, MaxRetries: -1, ConnMaxLifetime: 30 * time.Second,
		DialTimeout: 500 * time.Millisecond, ReadTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond, PoolTimeout: 300 * time.Millisecond,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			return firstAccepted(file, func(c credential) error { return cn.AuthACL(ctx, c.user, c.password).Err() })
		},
	})
}
