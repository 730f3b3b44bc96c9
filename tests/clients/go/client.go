// The net/http client of the acceptance tests: prints the status, the protocol and the body.
//
//	go-client GET URL
//	go-client POST URL BODY
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	var body io.Reader
	if len(os.Args) > 3 {
		body = strings.NewReader(os.Args[3])
	}
	request, err := http.NewRequest(os.Args[1], os.Args[2], body)
	if err == nil {
		client := &http.Client{Timeout: 60 * time.Second}
		var response *http.Response
		if response, err = client.Do(request); err == nil {
			var text []byte
			text, err = io.ReadAll(response.Body)
			fmt.Println(response.Status, response.Proto)
			fmt.Println(string(text))
			if err == nil && response.StatusCode >= 400 {
				os.Exit(1)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
