// Words are counted and sorted by goroutines, whose memory the runtime returns to the kernel and
// takes again. Programs are run, too.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"sort"
	"sync"
)

const goroutines = 8

// What code in C does, if there is any.
var inC func()

func main() {
	if inC != nil {
		inC()
	}
	counts := map[string]int{}
	for n := 0; n < 200000; n++ {
		counts[fmt.Sprint("word ", n*7919%20011)] += n
	}
	words := make([]string, 0, len(counts))
	for word := range counts {
		words = append(words, word)
	}
	sort.Strings(words)
	sums := make([]int, goroutines)
	for round := 0; round < 3; round++ {
		var all sync.WaitGroup
		for nth := range sums {
			all.Add(1)
			go func(nth int) {
				defer all.Done()
				for at := nth; at < len(words); at += goroutines {
					buffer := make([]byte, 4096)
					buffer[at%4096]++
					sums[nth] += counts[words[at]] + int(buffer[at%4096])
				}
			}(nth)
		}
		all.Wait()
		debug.FreeOSMemory()
	}
	fmt.Println(len(words), words[0], words[len(words)-1], sums)
	own, err := os.Executable()
	fmt.Println(own, err)
	if len(os.Args) == 1 {
		return
	}
	for _, program := range os.Args[1:] {
		out, err := exec.Command(program, "again", "3").CombinedOutput()
		fmt.Println(string(out), err)
	}
	out, err := exec.Command("/bin/echo", "from", "echo").Output()
	fmt.Println(string(out), err)
	_, err = exec.Command("/no/such/program").Output()
	fmt.Println(err)
}
