// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/policymaker"
)

const (
	// trialAddress is where the manager answers trials of policies. Only processes in its own pod reach the address, and
	// only administrators start any there.
	trialAddress = "127.0.0.1:8082"
	// maxTrial bounds what is read of a trial, or of its answer.
	maxTrial = 4 << 20
	// trialTimeout is how long an answer may take: longer than all deadlines of policies together.
	trialTimeout = 30 * time.Second
)

// policyTestFlags are those of `hanse policy test`.
type policyTestFlags struct {
	trial    policymaker.Trial
	question string
	input    string
	request  bool
}

func newPolicyCommand() *cobra.Command {
	command := &cobra.Command{Use: "policy", Short: "Try policies", Args: cobra.NoArgs}
	flags := &policyTestFlags{}
	test := &cobra.Command{
		Use:   "test [FILE.rego]",
		Short: "Ask a policy, and show what it answers and which rules decide",
		Long: "Asks the module in the file, or without one the policies in force, with the input in a file or with what the cluster\n" +
			"knows now. With a file and an input it needs no cluster. Otherwise it has to run in the pod of the manager, such as by\n" +
			"`kubectl hanse policy test`. A file that is called - is standard input. The answer is JSON.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error { return flags.run(command, args) },
	}
	f := test.Flags()
	f.StringVar(&flags.question, "question", "", fmt.Sprintf("what is asked, one of %v", policy.Questions()))
	f.StringVar(&flags.input, "input", "", "file with the input, as JSON")
	f.StringVar(&flags.trial.About, "about", "", "Peer, cluster id or namespace whose facts are the input")
	f.BoolVar(&flags.request, "request", false, "read all of this from standard input, as `kubectl hanse` writes it")
	_ = f.MarkHidden("request") // there is such a flag
	command.AddCommand(test)
	return command
}

func (f *policyTestFlags) run(command *cobra.Command, args []string) error {
	trial, err := f.read(command.InOrStdin(), args)
	if err != nil {
		return err
	}
	answer, err := answerTrial(command.Context(), trial)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(command.OutOrStdout())
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(answer); err != nil {
		return err
	}
	if answer.Error != "" && !f.request {
		return errors.New(answer.Error)
	}
	return nil
}

// read puts the trial together from flags and files.
func (f *policyTestFlags) read(in io.Reader, args []string) (policymaker.Trial, error) {
	trial := f.trial
	if f.request {
		err := json.NewDecoder(io.LimitReader(in, maxTrial)).Decode(&trial)
		return trial, err
	}
	trial.Question = policy.Question(f.question)
	if len(args) == 1 && args[0] == "-" && f.input == "-" {
		return trial, errors.New("standard input is either the module or the input")
	}
	if len(args) == 1 {
		module, err := readFile(in, args[0])
		if err != nil {
			return trial, err
		}
		trial.Module = &module
	}
	if f.input != "" {
		input, err := readFile(in, f.input)
		if err != nil {
			return trial, err
		}
		trial.Input = &input
	}
	return trial, nil
}

func readFile(in io.Reader, name string) (string, error) {
	if name != "-" {
		data, err := os.ReadFile(name) //nolint:gosec // the user names it
		return string(data), err
	}
	data, err := io.ReadAll(io.LimitReader(in, maxTrial))
	return string(data), err
}

// answerTrial answers here if a module and an input are given. Everything else is known to the manager alone.
func answerTrial(ctx context.Context, trial policymaker.Trial) (policymaker.Answer, error) {
	if trial.Module != nil && trial.Input != nil {
		alone := policymaker.New(policymaker.Config{}, nil, nil, clock.RealClock{}, nil)
		return alone.Try(ctx, trial), nil
	}
	return askManager(ctx, "http://"+trialAddress, trial)
}

// askManager has the manager in this pod answer.
func askManager(ctx context.Context, url string, trial policymaker.Trial) (policymaker.Answer, error) {
	answer := policymaker.Answer{}
	body, err := json.Marshal(trial)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer, fmt.Errorf("ask the manager, which must run in this pod: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // all of it was read
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("the manager answers %s", response.Status)
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxTrial)).Decode(&answer)
	return answer, err
}

// addTrials has the manager answer trials. Without the address it runs all the same: nothing else needs it.
func (f *managerFlags) addTrials(mgr manager.Manager) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", trialAddress)
	if err != nil {
		ctrl.Log.Info("Policies cannot be tried", "address", trialAddress, "reason", err.Error())
		return nil
	}
	return mgr.Add(&manager.Server{
		Name:            "trials of policies",
		Server:          &http.Server{Handler: trials(f.maker), ReadHeaderTimeout: trialTimeout},
		Listener:        listener,
		ShutdownTimeout: ptr.To(time.Second),
	})
}

// trials answers trials that are posted.
func trials(maker *policymaker.Maker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trial := policymaker.Trial{}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxTrial)).Decode(&trial); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(maker.Try(r.Context(), trial)) // whoever has asked may be gone
	})
}
