// Asks a name server's address with the Go client: one JSON object a line on standard input, one a line on standard output.
//
// "op" names the operation, as in Clients.java and Producers.java. A message is answered by where it is in the log.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type question struct {
	Op, Topic, Group, Broker, Tags, Key, Body, State string
	QueueID, Offset, Want, Seconds, Linger, N        int
	Broadcast, Orderly                               bool
}

type client struct {
	resolver  primitive.NsResolver
	instances int
	puller    rocketmq.PullConsumer
	producer  rocketmq.Producer
}

func (c *client) instance() string {
	c.instances++
	return fmt.Sprint("go", c.instances)
}

func (q question) selector() consumer.MessageSelector {
	if q.Tags == "" {
		return consumer.MessageSelector{}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: q.Tags}
}

func places(messages []*primitive.MessageExt) []int64 {
	found := make([]int64, 0, len(messages))
	for _, message := range messages {
		found = append(found, message.CommitLogOffset)
	}
	return found
}

func (c *client) answer(q question) (any, error) {
	ctx := context.Background()
	switch q.Op {
	case "topics":
		asker, err := admin.NewAdmin(admin.WithResolver(c.resolver))
		if err != nil {
			return nil, err
		}
		found, err := asker.FetchAllTopicList(ctx)
		if err != nil {
			return nil, err
		}
		return found.TopicList, nil
	case "push":
		return c.push(q)
	case "pull":
		return c.pull(ctx, q)
	case "transaction":
		return c.transaction(ctx, q)
	default:
		return c.send(ctx, q)
	}
}

func (c *client) push(q question) (any, error) {
	model := consumer.Clustering
	if q.Broadcast {
		model = consumer.BroadCasting
	}
	pushed, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(q.Group), consumer.WithInstance(c.instance()), consumer.WithNsResolver(c.resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(q.Orderly))
	if err != nil {
		return nil, err
	}
	var mutex sync.Mutex
	got := []int64{}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		got = append(got, places(messages)...)
		return consumer.ConsumeSuccess, nil
	}
	count := func() int {
		mutex.Lock()
		defer mutex.Unlock()
		return len(got)
	}
	if err := pushed.Subscribe(q.Topic, q.selector(), take); err != nil {
		return nil, err
	}
	if err := pushed.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Duration(q.Seconds) * time.Second); time.Now().Before(end) && count() < q.Want; {
		time.Sleep(20 * time.Millisecond)
	}
	// What comes twice would come now.
	time.Sleep(time.Duration(q.Linger) * time.Millisecond)
	err = pushed.Shutdown()
	mutex.Lock()
	defer mutex.Unlock()
	return [][]int64{got}, err
}

func (c *client) pull(ctx context.Context, q question) (any, error) {
	if c.puller == nil {
		puller, err := rocketmq.NewPullConsumer(
			consumer.WithGroupName(q.Group), consumer.WithInstance(c.instance()), consumer.WithNsResolver(c.resolver))
		if err != nil {
			return nil, err
		}
		if err := puller.Subscribe(q.Topic, q.selector()); err != nil {
			return nil, err
		}
		if err := puller.Start(); err != nil {
			return nil, err
		}
		c.puller = puller
	}
	queue := primitive.MessageQueue{Topic: q.Topic, BrokerName: q.Broker, QueueId: q.QueueID}
	pulled, err := c.puller.PullFrom(ctx, &queue, int64(q.Offset), 32)
	if err != nil {
		return nil, err
	}
	status := []string{"FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL"}[pulled.Status]
	return map[string]any{
		"status": status, "next": pulled.NextBeginOffset, "messages": places(pulled.GetMessageExts()),
	}, nil
}

func (q question) message(number int) *primitive.Message {
	message := primitive.NewMessage(q.Topic, fmt.Appendf(nil, "%s-%d", q.Body, number))
	return message.WithTag(q.Tags).WithKeys([]string{q.Key})
}

func (c *client) options(group string) []producer.Option {
	return []producer.Option{
		producer.WithGroupName(group), producer.WithInstanceName(c.instance()), producer.WithNsResolver(c.resolver),
		producer.WithRetry(0), producer.WithSendMsgTimeout(20 * time.Second),
	}
}

// place tells what the producer was told of a message: the status, the queue, the offset there, both ids.
func place(sent *primitive.SendResult) []any {
	return []any{sent.Status, sent.MessageQueue.QueueId, sent.QueueOffset, sent.OffsetMsgID, sent.MsgID}
}

func (c *client) send(ctx context.Context, q question) (any, error) {
	if c.producer == nil {
		sender, err := rocketmq.NewProducer(c.options("go-producer")...)
		if err != nil {
			return nil, err
		}
		if err := sender.Start(); err != nil {
			return nil, err
		}
		c.producer = sender
	}
	messages := make([]*primitive.Message, 0, q.N)
	for number := range max(1, q.N) {
		messages = append(messages, q.message(number))
	}
	found := []any{}
	switch q.Op {
	case "send":
		for _, message := range messages {
			sent, err := c.producer.SendSync(ctx, message)
			if err != nil {
				return nil, err
			}
			found = append(found, place(sent))
		}
		return found, nil
	case "batch":
		sent, err := c.producer.SendSync(ctx, messages...)
		if err != nil {
			return nil, err
		}
		return place(sent), nil
	case "oneway":
		for _, message := range messages {
			if err := c.producer.SendOneWay(ctx, message); err != nil {
				return nil, err
			}
		}
		return len(messages), nil
	case "async":
		type outcome struct {
			sent *primitive.SendResult
			err  error
		}
		outcomes := make(chan outcome, len(messages))
		done := func(_ context.Context, sent *primitive.SendResult, err error) { outcomes <- outcome{sent, err} }
		for _, message := range messages {
			if err := c.producer.SendAsync(ctx, done, message); err != nil {
				return nil, err
			}
		}
		for range messages {
			each := <-outcomes
			if each.err != nil {
				return nil, each.err
			}
			found = append(found, place(each.sent))
		}
		return found, nil
	default:
		return nil, fmt.Errorf("no operation %q", q.Op)
	}
}

// ends is a listener whose local transaction ends in one way.
type ends primitive.LocalTransactionState

func (e ends) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return primitive.LocalTransactionState(e)
}

func (e ends) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.LocalTransactionState(e)
}

func (c *client) transaction(ctx context.Context, q question) (any, error) {
	state := primitive.RollbackMessageState
	if q.State == "COMMIT_MESSAGE" {
		state = primitive.CommitMessageState
	}
	sender, err := rocketmq.NewTransactionProducer(ends(state), c.options("go-"+q.State)...)
	if err != nil {
		return nil, err
	}
	if err := sender.Start(); err != nil {
		return nil, err
	}
	sent, err := sender.SendMessageInTransaction(ctx, q.message(0))
	if err != nil {
		return nil, err
	}
	return place(sent.SendResult), nil
}

func main() {
	own := &client{resolver: primitive.NewPassthroughResolver([]string{os.Args[1]})}
	input := bufio.NewScanner(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for input.Scan() {
		var q question
		said := map[string]any{}
		err := json.Unmarshal(input.Bytes(), &q)
		if err == nil {
			said["result"], err = own.answer(q)
		}
		if err != nil {
			said = map[string]any{"refused": fmt.Sprintf("%T", err), "text": err.Error()}
		}
		if err := output.Encode(said); err != nil {
			panic(err)
		}
	}
}
