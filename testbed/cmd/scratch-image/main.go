// Command scratch-image makes an image archive from files, on an empty base and without an engine.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hanse-dev/hanse/testbed/internal/image"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var (
		spec   image.Spec
		output string
		files  []string
	)
	command := &cobra.Command{
		Use:   "scratch-image --output FILE.tar --tag NAME --file SOURCE=/PATH... --entrypoint /PATH",
		Short: "Make an image archive from files, on an empty base and without an engine",
		Long: "Make an image archive from files, on an empty base and without an engine.\n\n" +
			"The same files give the same archive, to the byte. `ctr images import` and `docker load` take it.",
		Example:       "  scratch-image -o hello.tar --tag example.com/hello:v1 --file bin/hello=/hello --entrypoint /hello --user 65532",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			for _, text := range files {
				file, err := image.ParseFile(text)
				if err != nil {
					return err
				}
				spec.Files = append(spec.Files, file)
			}
			return image.Write(spec, output)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&output, "output", "o", "", "the archive to write")
	flags.StringVar(&spec.Tag, "tag", "", "the image's name and tag")
	flags.StringArrayVar(&files, "file", nil, "a file of the image, as SOURCE=/PATH")
	flags.StringArrayVar(&spec.Entrypoint, "entrypoint", nil, "the program and its first arguments, one for each flag")
	flags.StringArrayVar(&spec.Cmd, "cmd", nil, "the default arguments, one for each flag")
	flags.StringArrayVar(&spec.Env, "env", nil, "an environment variable, as NAME=VALUE")
	flags.StringVar(&spec.User, "user", "", "the user to run as, like 65532")
	flags.StringVar(&spec.WorkDir, "workdir", "", "the folder to start in")
	_ = command.MarkFlagRequired("output")
	_ = command.MarkFlagRequired("tag")
	return command
}
