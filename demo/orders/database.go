// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"
	wire "github.com/jeroenrinzema/psql-wire"
	_ "modernc.org/sqlite" // the SQL database itself
)

// database is a server that speaks the protocol of PostgreSQL and keeps its tables in a file, by SQLite. Each statement is a transaction.
func database(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("database", flag.ContinueOnError)
	listen := flags.String("listen", ":5432", "where to listen")
	path := flags.String("file", "/data/orders.db", "where the data is")
	file := flags.String("credentials", "/etc/orders/secret/credentials", "who may log in")
	if err := flags.Parse(args); err != nil {
		return err
	}
	db, err := openFile(ctx, *path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	server, err := newDatabase(db, credentialFile(*file))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() {
		if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
			slog.Error("Ending connections", "error", err)
		}
	})
	return server.ListenAndServe(*listen)
}

// The table that there is.
const schema = "CREATE TABLE IF NOT EXISTS orders (client TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (client, number)) WITHOUT ROWID"

// openFile opens the file of the database. What is confirmed survives the end of the process. It need not survive that of the
// machine: to wait for the disk each time is more than a busy machine of a demonstration has to give.
func openFile(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // as many as may write
	_, err = db.ExecContext(ctx, schema)
	return db, err
}

func newDatabase(db *sql.DB, file credentialFile) (*wire.Server, error) {
	login := func(ctx context.Context, _, user, password string) (context.Context, bool, error) {
		ok, err := file.accepts(credential{user, password})
		return ctx, ok, err
	}
	parse := func(ctx context.Context, query wire.Query) (wire.PreparedStatements, error) {
		return prepare(ctx, db, query.Query)
	}
	return wire.NewServer(parse, wire.SessionAuthStrategy(wire.ClearTextPassword(login)), wire.WithShutdownTimeout(drainTime),
		wire.MessageBufferSize(64<<10)) // of each connection; the default is 16 MiB
}

// prepare returns the statement, whose parameters and results are texts: clients ask for these before they run it.
func prepare(ctx context.Context, db *sql.DB, query string) (wire.PreparedStatements, error) {
	parameters := wire.ParseParameters(query)
	for i := range parameters {
		parameters[i] = pgtype.TextOID
	}
	columns, err := columnsOf(ctx, db, query, len(parameters))
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, writer wire.DataWriter, given []wire.Parameter) error {
		values := make([]any, len(given))
		for i := range given {
			values[i] = string(given[i].Value())
		}
		if strings.HasPrefix(query, "--") {
			return writer.Empty() // a comment, by which clients look whether anybody is there
		}
		if columns == nil {
			return change(ctx, db, writer, query, values)
		}
		return answer(ctx, db, writer, query, values)
	}
	return wire.Prepared(wire.NewStatement(run, wire.WithParameters(parameters), wire.WithColumns(columns))), nil
}

// columnsOf returns the columns of what a query returns, or nil for a statement that returns nothing.
func columnsOf(ctx context.Context, db *sql.DB, query string, parameters int) (wire.Columns, error) {
	if !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(query)), "SELECT") {
		return nil, nil
	}
	rows, err := db.QueryContext(ctx, "SELECT * FROM ("+query+") LIMIT 0", make([]any, parameters)...) //nolint:gosec // a database runs what it is sent
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	columns := make(wire.Columns, len(names))
	for i, name := range names {
		columns[i] = wire.Column{Name: name, Oid: pgtype.TextOID, Width: -1}
	}
	return columns, err
}

func change(ctx context.Context, db *sql.DB, writer wire.DataWriter, query string, values []any) error {
	result, err := db.ExecContext(ctx, query, values...)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return err
	}
	return writer.Complete(fmt.Sprintf("INSERT 0 %d", changed))
}

func answer(ctx context.Context, db *sql.DB, writer wire.DataWriter, query string, values []any) error {
	rows, err := db.QueryContext(ctx, query, values...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	texts := make([]sql.NullString, len(writer.Columns()))
	into, row := make([]any, len(texts)), make([]any, len(texts))
	for i := range texts {
		into[i] = &texts[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, text := range texts {
			if row[i] = nil; text.Valid {
				row[i] = text.String
			}
		}
		if err := writer.Row(row); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return writer.Complete(fmt.Sprintf("SELECT %d", writer.Written()))
}

// A connector opens connections to the database.
type connector struct {
	address string
	file    credentialFile
}

// Connect logs in with the credentials that the file has now.
func (c connector) Connect(ctx context.Context) (conn driver.Conn, err error) {
	config, err := pgx.ParseConfig("postgres://" + c.address + "/orders?sslmode=disable&connect_timeout=5")
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	err = firstAccepted(c.file, func(login credential) error {
		config.User, config.Password = login.user, login.password
		conn, err = stdlib.GetConnector(*config).Connect(ctx)
		return err
	})
	return conn, err
}

func (c connector) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// openDatabase is the client of the database. Connections are made anew from time to time, with the credential of that time.
func openDatabase(address string, file credentialFile) *sql.DB {
	db := sql.OpenDB(connector{address, file})
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	db.SetConnMaxLifetime(30 * time.Second)
	return db
}
