// Package docker gets a store's server as a container: one node on a fixed port of loopback, killed, paused and restarted
// through the engine's API. Which image, and how to speak to what runs in it, the packages of the stores say.
package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"

	"github.com/eventproof/eventproof/clock"
	"github.com/eventproof/eventproof/provision"
)

// Image is how a store runs as a container.
type Image struct {
	Store, Title string // "postgres", "Postgres"
	Ref          string // with its tag; EVENTPROOF_<STORE>_IMAGE names another one, of a registry of one's own for example
	Emulated     bool   // by its nature
	Port         int    // that the server listens at inside
	// Env is the container's environment; addr is where clients reach the server.
	Env func(addr string) map[string]string
	Cmd []string
	URL func(addr string) string
	// Open speaks to the server at a URL and says what it is; an error means that it is not ready.
	Open func(ctx context.Context, url string) (*provision.Server, error)
}

// EnvImage names the environment variable for a store's image.
func EnvImage(store string) string { return "EVENTPROOF_" + strings.ToUpper(store) + "_IMAGE" }

// Way returns the way to the server by the engine. It never pulls an image by itself: only where it was asked for
// (Options.Kind is Docker), or by Fetch.
func (i Image) Way() provision.Way {
	return provision.Way{Kind: provision.Docker, Emulated: i.Emulated, Start: i.start, Inspect: i.inspect, Fetch: i.fetch}
}

func (i Image) ref() string {
	if ref := os.Getenv(EnvImage(i.Store)); ref != "" {
		return ref
	}
	return i.Ref
}

const (
	engineTimeout = 3 * time.Second  // of a question to the engine
	pullTimeout   = 10 * time.Minute // of an image
	readyTimeout  = 90 * time.Second // of a server
	probeTimeout  = 2 * time.Second
	probePause    = 50 * time.Millisecond
	endTimeout    = 30 * time.Second
)

func (i Image) none(format string, args ...any) error {
	return &provision.NoServerError{
		Title: i.Title, Tried: []provision.Try{{What: provision.Docker, Result: fmt.Sprintf(format, args...)}},
		Remedy: "Start a Docker engine, or use another provider",
	}
}

// engine connects to the engine that DOCKER_HOST, a context or the usual socket names.
func (i Image) engine(ctx context.Context) (*testcontainers.DockerClient, error) {
	// The library would start a container of its own, of an image that it pulls, to remove ours when we are gone: we
	// do that by our own labels.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return nil, fmt.Errorf("provision: %w", err)
	}
	log.SetDefault(log.NewNoopLogger())
	asking, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	c, err := testcontainers.NewDockerClientWithOpts(asking)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		if os.Getenv("DOCKER_HOST") == "" {
			return nil, i.none("no engine answers at the usual socket")
		}
		return nil, i.none("the engine of DOCKER_HOST does not answer: %s", firstLine(err))
	}
	return c, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// here reports whether the image is on this machine.
func here(ctx context.Context, c *testcontainers.DockerClient, ref string) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	_, err := c.ImageInspect(asking, ref)
	switch {
	case err == nil:
		return true, nil
	case errdefs.IsNotFound(err):
		return false, nil
	}
	return false, fmt.Errorf("provision: asking the Docker engine for the image %s: %w", ref, err)
}

func pull(ctx context.Context, c *testcontainers.DockerClient, ref string, o provision.Options) error {
	o.Logf("docker: pulling %s", ref)
	pulling, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	got, err := c.ImagePull(pulling, ref, client.ImagePullOptions{})
	if err == nil {
		err = got.Wait(pulling)
	}
	if err != nil {
		return fmt.Errorf("the image %s can't be pulled: %s; name one that is here in the environment variable of its store, EVENTPROOF_<STORE>_IMAGE", ref, firstLine(err))
	}
	return nil
}

func (i Image) start(ctx context.Context, o provision.Options) (*provision.Server, error) {
	c, err := i.engine(ctx)
	if err != nil {
		return nil, err
	}
	give := c
	defer func() {
		if give != nil {
			_ = give.Close()
		}
	}()
	if err := sweep(ctx, c, o, i.Store); err != nil {
		o.Logf("%s: %v", i.Store, err)
	}
	ref := i.ref()
	found, err := here(ctx, c, ref)
	switch {
	case err != nil:
		return nil, i.none("%s", err)
	case !found && o.Kind != provision.Docker && !o.Fetch:
		return nil, i.none("the image %s is not here, and none is pulled unasked (eventproof doctor --fetch pulls it)", ref)
	case !found:
		if err := pull(ctx, c, ref, o); err != nil {
			return nil, i.none("%s", err)
		}
	}
	port, err := provision.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{engine: c, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), logs: logFile(o, i.Store)}
	if err := i.run(ctx, p, ref, port); err != nil {
		return nil, errors.Join(i.none("%s", err), p.remove())
	}
	p.ready = func(ctx context.Context) error {
		_, err := i.await(ctx, p)
		return err
	}
	is, err := i.await(ctx, p)
	if err != nil {
		return nil, errors.Join(i.none("%s", err), p.remove())
	}
	give = nil
	s := provision.NewServer(provision.Info{
		Store: i.Store, Title: i.Title, Kind: provision.Docker, Fidelity: is.Fidelity(), Version: is.Version(),
		URL: i.URL(p.addr), Addr: p.addr, Logs: p.logs,
	}, p)
	o.Logf("%s: %s: docker, image %s", i.Store, s, ref)
	return s, nil
}

// run creates and starts the container.
func (i Image) run(ctx context.Context, p *process, ref string, port int) error {
	inside := strconv.Itoa(i.Port) + "/tcp"
	own, err := labels()
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ctr, err := testcontainers.Run(starting, ref,
		testcontainers.WithEnv(i.Env(p.addr)), testcontainers.WithCmd(i.Cmd...), testcontainers.WithLabels(own),
		testcontainers.WithExposedPorts(inside), testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			// A port of the engine's choice would be another one after a restart.
			h.PortBindings = network.PortMap{network.MustParsePort(inside): {
				{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}), HostPort: strconv.Itoa(port)},
			}}
		}))
	if ctr != nil {
		p.id = ctr.GetContainerID()
	}
	if err != nil {
		return fmt.Errorf("a container of %s does not start: %s", ref, firstLine(err))
	}
	return nil
}

// await asks the server until it answers as its protocol wants: that its port accepts a connection says nothing, since
// the engine's own proxy accepts it.
func (i Image) await(ctx context.Context, p *process) (*provision.Server, error) {
	waiting, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		asking, done := context.WithTimeout(waiting, probeTimeout)
		s, err := i.Open(asking, i.URL(p.addr))
		done()
		if err == nil {
			return s, nil
		}
		if running, how := p.running(waiting); !running && waiting.Err() == nil {
			return nil, fmt.Errorf("the container has ended (%s); the last of its log: %s", how, p.tail())
		}
		if clock.Sleep(waiting, probePause) != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("the container runs, but is not ready after %s: %s; the last of its log: %s", readyTimeout, firstLine(err), p.tail())
		}
	}
}

func (i Image) inspect(ctx context.Context, _ provision.Options) []provision.Option {
	out := provision.Option{Name: provision.Docker}
	c, err := i.engine(ctx)
	if err != nil {
		var no *provision.NoServerError
		if errors.As(err, &no) {
			out.Detail = no.Tried[0].Result
		} else {
			out.Detail = err.Error()
		}
		return []provision.Option{out}
	}
	defer c.Close() //nolint:errcheck // it was only asked
	found, err := here(ctx, c, i.ref())
	switch {
	case err != nil:
		out.Detail = err.Error()
	case found:
		out.Available, out.Detail = true, "image "+i.ref()
	default:
		out.Detail = fmt.Sprintf("the image %s is not here; eventproof doctor --fetch pulls it", i.ref())
	}
	return []provision.Option{out}
}

// fetch pulls the image where there is an engine.
func (i Image) fetch(ctx context.Context, o provision.Options) error {
	c, err := i.engine(ctx)
	if errors.Is(err, provision.ErrNoServer) {
		return nil // there is nothing that it could be pulled to; doctor says so
	}
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it was only asked
	found, err := here(ctx, c, i.ref())
	if err != nil || found {
		return err
	}
	return pull(ctx, c, i.ref(), o)
}
