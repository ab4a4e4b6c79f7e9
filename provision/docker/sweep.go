package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/internal/proc"
)

// Labels of our containers: whose they are. They carry no label of the library that another program would sweep by.
const (
	labelOwner = "eventproof.owner" // pid of the process that made it
	labelStart = "eventproof.owner.start"
	labelBoot  = "eventproof.boot" // start times are comparable within one
)

func labels() (map[string]string, error) {
	own, ok := proc.Of(os.Getpid())
	if !ok {
		return nil, errors.New("provision: this process is not in /proc")
	}
	return map[string]string{
		labelOwner: strconv.Itoa(own.PID), labelStart: strconv.FormatUint(own.Start, 10), labelBoot: proc.BootID(),
	}, nil
}

// sweep removes the containers that runs which are gone have left, by their labels, and nothing of a run that is still
// there.
func sweep(ctx context.Context, c *testcontainers.DockerClient, o provision.Options, store string) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	all, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelOwner)})
	if err != nil {
		return fmt.Errorf("provision: listing containers: %w", err)
	}
	var errs []error
	for _, x := range all.Items {
		if orphan(x.Labels) {
			if err := remove(ctx, c, x.ID); err != nil {
				errs = append(errs, err)
				continue
			}
			o.Logf("%s: removed what a killed run has left: container %.12s", store, x.ID)
		}
	}
	return errors.Join(errs...)
}

// orphan reports whether the labels name a process that is gone.
func orphan(labels map[string]string) bool {
	pid, err1 := strconv.Atoi(labels[labelOwner])
	start, err2 := strconv.ParseUint(labels[labelStart], 10, 64)
	if err1 != nil || err2 != nil || labels[labelBoot] == "" {
		return false // not of our making
	}
	return labels[labelBoot] != proc.BootID() || !proc.Process{PID: pid, Start: start}.Runs()
}
